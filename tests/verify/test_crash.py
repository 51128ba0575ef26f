"""`outlast verify crash`: a sample of every path, on one of both databases."""

from __future__ import annotations

import json

import pytest

from outlast.store.dialects import SQLITE
from outlast.store.statements import queries
from tests.support import Database, Processes
from tests.verify.running import all_paths, only, run, sampled_paths

# Statements that write and are on no path, each with the reason.
NOT_WALKED: dict[str, str] = {
    "prune_bridges": "for people: what it removes is reported again",
    "report_bridges": "for people: a report that is lost is made again",
}


@pytest.mark.slow
def test_whoever_is_killed_wherever_nothing_is_lost(
    processes: Processes, database: Database
) -> None:
    """R001, R002, R008, R026, R027, R044, R061–R063, R068, R090, R205: SIGKILL before or after any
    statement of any path; then everything ends as promised, once, on record."""
    here = sampled_paths(database.kind, half=database.is_sqlite)
    said = run(processes, "crash", database, "--seed", 1, "--points", len(here), *only(here))
    assert said["violations"] == 0, said["wrong"]
    assert set(said["paths"]) == set(here)
    # On a busy machine a path may have said more when it was counted than when its turn came.
    spared = {name for name, row in said["paths"].items() if not row.get("kills")}
    assert len(spared) <= len(here) // 20, spared
    assert {name for name in spared if not said["paths"][name].get("survived")} == set()
    assert said["kills"] >= len(here)
    assert said["jobs"] > said["kills"]
    assert left(database) == []


TRACE = """
    import json, sys
    from outlast.verify.campaigns.campaign import CampaignOptions
    from outlast.verify.campaigns.crash import LEASE_S, Crash
    from outlast.verify.campaigns.count_points import PointCounter

    class Traced(Crash):
        def campaign(self):
            self.words = PointCounter(self, LEASE_S, lambda *_: None).run()

    traced = Traced(CampaignOptions(url=sys.argv[1]))
    traced.run()
    print(json.dumps(traced.words))
"""


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_every_statement_that_writes_is_on_some_path(
    processes: Processes, database: Database
) -> None:
    """R205: what is added to the protocol and to no path is noticed here. (What the campaigns
    write themselves, to make a fault, is no part of the protocol.)"""
    traced = json.loads(processes.python(TRACE, database.url).succeed(60.0))
    assert set(traced) == set(all_paths("sqlite"))
    said = {word for words in traced.values() for word in words}
    written = {
        query.name: " ".join(query.sql.split())[:60]
        for query in queries(SQLITE, "outlast").all().values()
        if not query.reads and ":" not in query.name
    }
    assert {name for name, text in written.items() if text not in said} == set(NOT_WALKED)


@pytest.mark.campaign
def test_every_point_of_every_path(processes: Processes, database: Database) -> None:
    """R205: the list of points is the list of tests."""
    started = processes.python(
        "outlast", "verify", "crash", "--url", database.url, "--json", "--points", 3000
    )
    started.succeed(1800.0)


def left(database: Database) -> list[str]:
    """What a campaign left behind."""
    if database.is_sqlite:
        return [path.name for path in database.path.parent.glob("outlast-verify-*")]
    query = "SELECT nspname FROM pg_namespace WHERE strpos(nspname, '_verify_') > 0"
    return [name for (name,) in database.rows(query)]
