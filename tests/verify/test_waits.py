"""`outlast verify waits`: a sample on both databases, and a judge that sees what is wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import Job, State
from outlast.verify.checks.signals import count_signals, judge_signals
from tests.support import Database, Processes
from tests.verify.running import figures, run, start
from tests.verify.test_crash import left

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(
    id="j", task="waits", queue="q", state=State.SUCCEEDED, attempt=1,
    args={"signals": 2, "timeout": 0.1}, result={"late": 0}, error=None, run_at=NOW,
    created_at=NOW, started_at=NOW, finished_at=NOW, worker=None, tenant="t",
)  # fmt: skip
SENT = [("j", "go", "0", "go"), ("j", "go", "1", "go#2"), ("j", "maybe", "0", "maybe")]


@pytest.mark.slow
def test_each_signal_is_taken_once_while_workers_and_senders_are_killed(
    processes: Processes, database: Database
) -> None:
    """R246: early, double and late signals, some in transactions that are rolled back."""
    said = run(processes, "waits", database, "--seed", 1, "--points", 60, "--budget", 6)
    assert said["violations"] == 0, said["wrong"]
    assert said["runs"] > 0
    assert said["signals"] >= said["taken"] > 0
    assert left(database) == []


@pytest.mark.campaign
def test_ten_thousand_signals_race_waits_and_timeouts(
    processes: Processes, database: Database
) -> None:
    """R246: each taken once, none lost, none twice."""
    words = ["--url", database.url, "--json", "--points", 7000, "--budget", "20m"]
    said = figures(start(processes, "waits", *words).succeed(1800.0))
    assert said["signals"] >= 10_000


@pytest.mark.parametrize(
    ("signals", "result"),
    [
        (SENT[:1] + SENT[2:], {"late": 0}),
        ([SENT[0], ("j", "go", "1", None), SENT[2]], {"late": 0}),
        ([SENT[0], ("j", "go", "1", "go"), SENT[2]], {"late": 0}),
        (SENT[:2], {"late": 0}),
        (SENT, {"late": "timed out"}),
        (SENT[:2], {"late": None}),
    ],
    ids=["lost", "not taken", "one wait, two signals", "not sent", "decided twice", "undecided"],
)
def test_the_judge_sees_a_signal_that_is_wrong(signals: Any, result: Any) -> None:
    [wrong] = judge_signals([replace(JOB, result=result)], signals)
    assert wrong.startswith("I8: j: ")


def test_the_judge_has_nothing_to_say_of_what_is_right() -> None:
    assert judge_signals([JOB], SENT) == []
    timed_out = [*SENT[:2], ("j", "maybe", "0", None)]
    late = replace(JOB, result={"late": "timed out"})
    assert judge_signals([late], timed_out) == []
    assert count_signals([late], timed_out) == {"signals": 3, "taken": 2, "timed_out": 1}
