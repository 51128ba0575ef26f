"""examples/seeds/executions.py: one terminal status, and a callback that arrives by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.seeds.playing import play
from tests.support import Database, Processes

ORGANISATIONS = 4
STARTER = ("starter before its commit", "starter after its commit")
READER = ("reader in a batch", "reader at random")
SETTLER = ("settler before its commit", "settler after its commit")


def assert_all_held(figures: dict[str, Any], files: int) -> None:
    wanted = {
        "refused without an organisation": 2,
        "jobs of refused executions": 0,
        "refused executions stored": 0,
        "files read": ORGANISATIONS * files,
        "executions that nobody works on": ORGANISATIONS,
        "terminal, with the API away": ORGANISATIONS,
        "told, with the API away": 0,
        "executions told": ORGANISATIONS + 1,  # and the one that was restarted
        "told another status": 0,
        "told under a second id": 0,
        "terminal statuses written": ORGANISATIONS + 1,
        "callbacks dead": 0,
        "status after a late success": "failed",
        "statuses told of it": ["failed"],
        "executions that four restarts made": [2],
        "statuses, old and new": ["failed", "completed"],
    }
    assert wanted.items() <= figures.items()


@pytest.mark.slow
@pytest.mark.kinds("sqlite")
def test_readers_that_are_killed_in_a_batch_and_after_the_last_commit_end_in_a_callback(
    processes: Processes, database: Database
) -> None:
    """R073, R081, R091, R126, R127, R212: also if a settler comes back after its lease."""
    options = ("--files", 10, "--kill", "reader", "--kill", "zombie")
    report = play(processes, "executions", database, *options)
    assert report["kills"] == {
        "reader in a batch": 1, "reader at random": 2, "reader after the last commit": 2
    }  # fmt: skip
    assert_all_held(report["figures"], 10)
    assert report["figures"]["settlers that came back too late"] == 1


@pytest.mark.slow
@pytest.mark.kinds("postgres")
def test_a_status_is_written_and_told_once_although_settler_and_teller_were_killed(
    processes: Processes, database: Database
) -> None:
    """R002, R073, R126, R129, R212: the teller dies after the answer, and its id is the same."""
    chosen = ("starter", "settler", "teller", "api")
    options = [word for kill in chosen for word in ("--kill", kill)]
    report = play(processes, "executions", database, "--files", 10, *options)
    expected = {*STARTER, *SETTLER, "teller after the answer", "status API"}
    assert set(report["kills"]) == {*expected, "reader after the last commit"}
    assert_all_held(report["figures"], 10)
    assert report["figures"]["execution and jobs, before its commit"] == [0, 0]
    assert report["figures"]["execution and jobs, after its commit"] == [1, 11]
    # One call each, two more for 500 and false each, and one that was answered and not recorded.
    assert report["figures"]["calls of the status API"] >= ORGANISATIONS + 1 + 2 + 2 + 1


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1, 6))
def test_executions_of_240_files_survive_every_kill(
    processes: Processes, database: Database, seed: int
) -> None:
    """R073, R081, R126, R127, R129, R212: all named points and random ones."""
    report = play(processes, "executions", database, "--seed", seed)
    expected = {*STARTER, *READER, *SETTLER, "teller after the answer", "status API"}
    assert set(report["kills"]) == {*expected, "reader after the last commit"}
    assert_all_held(report["figures"], 60)
    assert report["figures"]["settlers that came back too late"] == 1
