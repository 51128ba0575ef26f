"""examples/seeds/documents.py: five ways to orphan a document, each with its command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.seeds.playing import SEEDS, play
from tests.support import Database, Processes

ZEROS = (
    "lost",
    "extracts unreadable while refine was cut off",
    "extracts run again after their end",
    "retries before their time",
)
CLASSES = ("untriggered", "timer-lost", "owner-dead", "unhooked", "refiner-dead")
REAPER = "seconds until a reaper comes by"


def play_documents(
    processes: Processes, database: Database, classes: Sequence[str], *options: object
) -> dict[str, Any]:
    """The report, with what holds after any accident."""
    flags = [word for name in classes for word in ("--kill", name)]
    report = play(processes, "documents", database, *flags, *options)
    figures: dict[str, Any] = report["figures"]
    assert [figures[name] for name in ZEROS] == [0] * len(ZEROS)
    assert figures["documents"] == figures["documents stored"]
    assert figures["documents"] == figures["extracts that can be read"]
    assert figures["unclear, with an extract that can be read"] == 1
    for name in classes:
        assert 0 <= figures[f"seconds back, {name}"] <= 60 < figures[REAPER]
    return report


@pytest.mark.kinds("sqlite")
def test_a_document_goes_on_whether_its_worker_dies_in_a_stage_or_between_them(
    processes: Processes, database: Database
) -> None:
    """R063, R064, R065: in extract, after its commit, and in refine."""
    report = play_documents(
        processes, database, ("owner-dead", "unhooked", "refiner-dead"), "--rounds", 1
    )
    assert report["kills"] == {"in extract": 1, "after extract": 1, "in refine": 1}


@pytest.mark.slow
@pytest.mark.kinds("postgres")
def test_a_document_needs_no_trigger_and_no_timer_outside_its_rows(
    processes: Processes, database: Database
) -> None:
    """R044, R061, R062: the submitter dies around COMMIT, every worker in a back-off."""
    report = play_documents(processes, database, ("untriggered", "timer-lost"), "--rounds", 1)
    kills = report["kills"]
    assert kills.pop("every worker, while a retry waits") == 2
    assert kills == {"before submit": 1, "after submit": 1}


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1, 6))
def test_documents_survive_every_class_again_and_again(
    processes: Processes, database: Database, seed: int
) -> None:
    """R061-R065: ten times each, and a hundred documents while workers are killed at random."""
    sizes = ("--rounds", 10, "--documents", 100)
    report = play_documents(processes, database, (), "--seed", seed, *sizes)
    assert report["kills"]["random"] > 0
    assert all(f"seconds back, {name}" in report["figures"] for name in CLASSES)


def test_a_play_that_does_not_end_in_time_is_broken(processes: Processes) -> None:
    """No seed says that all of it held, unless it saw it."""
    played = processes.python(SEEDS / "documents.py", "--limit", 0.01)
    assert played.wait() == 1
    assert "BROKEN never happened" in played.output() and "held" not in played.output()
