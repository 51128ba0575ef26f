"""`outlast verify crash`: a sample of every path, on both databases."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest

from outlast.store.statements import SQLITE, queries
from outlast.verify.paths import PATHS
from tests.support import Database, Processes
from tests.verify.running import run


def test_whoever_is_killed_wherever_nothing_is_lost(
    processes: Processes, database: Database
) -> None:
    """R001, R002, R008, R026, R027, R044, R061–R063, R068, R090, R205: SIGKILL before or after any
    statement of any path; then everything ends as promised, once, on record."""
    said = run(processes, "crash", database, "--seed", 1, "--points", 3 * len(PATHS))
    here = {name for name, path in PATHS.items() if path.only in (None, database.kind)}
    assert said["violations"] == 0, said["wrong"]
    assert set(said["paths"]) == here
    # An idle worker says more on a busy machine, when it was counted, than when its turn comes.
    spared = {name for name, row in said["paths"].items() if not row.get("kills")}
    assert spared <= {"worker", "worker-one"}
    assert said["kills"] >= 3 * len(PATHS)
    assert said["jobs"] > said["kills"]
    assert left(database) == []


TRACE = """
    import json, sys
    from outlast.verify.campaign import Wish
    from outlast.verify.crash import LEASE, Crash
    from outlast.verify.tracing import Tracing

    class Traced(Crash):
        def campaign(self):
            self.words = Tracing(self, LEASE, lambda *_: None).run()

    traced = Traced(Wish(url=sys.argv[1]))
    traced.run()
    print(json.dumps(traced.words))
"""


@pytest.mark.kinds("sqlite")
def test_every_statement_that_writes_is_on_some_path(
    processes: Processes, database: Database
) -> None:
    """R205: what is added to the protocol and to no path is noticed here. (What the campaigns
    write themselves, to make a fault, is no part of the protocol.)"""
    theirs = files("outlast.store").joinpath("sql", "verify.sql").read_text("utf-8")
    faults = set(re.findall(r"^-- name: (\w+)$", theirs, re.MULTILINE))
    traced = json.loads(processes.python(TRACE, database.url).succeed(60.0))
    assert set(traced) == {name for name, path in PATHS.items() if path.only in (None, "sqlite")}
    said = {word for words in traced.values() for word in words}
    written = {
        query.name: " ".join(query.sql.split())[:60]
        for query in queries(SQLITE, "outlast").values()
        if not query.reads and query.name not in faults
    }
    assert [name for name, text in written.items() if text not in said] == []


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
