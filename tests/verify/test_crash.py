"""`outlast verify crash`: a sample of every path, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.verify.paths import PATHS
from tests.support import Database, Processes
from tests.verify.running import run


def test_whoever_is_killed_wherever_nothing_is_lost(
    processes: Processes, database: Database, tmp_path: Path
) -> None:
    """R001, R002, R008, R026, R027, R044, R061–R063, R068, R090, R205: SIGKILL before or after any
    statement of any path; then everything ends as promised, once, on record."""
    said = run(processes, "crash", database, "--seed", 1, "--points", 4 * len(PATHS))
    here = {name for name, path in PATHS.items() if path.only in (None, database.kind)}
    assert said["violations"] == 0, said["wrong"]
    assert set(said["paths"]) == here
    assert [name for name, row in said["paths"].items() if not row.get("kills")] == []
    assert said["kills"] >= 4 * len(PATHS)
    assert said["jobs"] > said["kills"]
    assert left(database) == []


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
