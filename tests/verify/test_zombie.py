"""`outlast verify zombie`: a sample of every path of an owner, on both databases."""

from __future__ import annotations

from outlast.verify.paths import PATHS
from tests.support import Database, Processes
from tests.verify.running import run
from tests.verify.test_crash import left

OWNERS = {name for name, path in PATHS.items() if path.owner}


def test_whoever_comes_back_too_late_changes_nothing(
    processes: Processes, database: Database
) -> None:
    """R030, R033, R210: frozen at a boundary until another owner has the job; then its finish (in
    all outcomes), release, renewal, events, steps, own writes and follow-up jobs are all refused,
    and it is told."""
    said = run(processes, "zombie", database, "--seed", 1, "--points", 3 * len(OWNERS) // 2)
    assert said["violations"] == 0, said["wrong"]
    assert set(said["paths"]) == OWNERS
    assert [name for name, row in said["paths"].items() if not row.get("frozen")] == []
    assert said["taken"] >= len(OWNERS)
    assert said["refused"] > 3 * said["taken"]
    if not database.is_sqlite:
        assert said["held"] == 0  # a server ends a frozen session; a file's lock cannot be broken
    assert left(database) == []
