"""`outlast verify lanes`: a sample on both databases, and a judge that sees what is wrong."""

from __future__ import annotations

import pytest

from outlast.verify.checks.lanes import IDLE_LIMIT_S, judge_lanes
from outlast.verify.lane_load import ORDERED, SLOTS
from outlast.verify.ledger import LedgerEntry
from tests.support import Database, Processes
from tests.verify.running import run, start
from tests.verify.test_crash import left


def test_limits_and_order_hold_while_workers_are_killed(
    processes: Processes, database: Database
) -> None:
    """R147, R238, R240: kills, failures, and limits changed meanwhile; by the history."""
    said = run(processes, "lanes", database, "--seed", 1, "--points", 400, "--budget", 8)
    assert said["violations"] == 0, said["wrong"]
    assert said["runs"] > 0
    assert left(database) == []


@pytest.mark.campaign
def test_limits_and_order_hold_for_ten_minutes(processes: Processes, database: Database) -> None:
    """R147, R238, R240: 8 workers."""
    words = ["--url", database.url, "--json", "--budget", "10m", "--workers", 8]
    start(processes, "lanes", *words).succeed(1800.0)


def slot(
    at: float, kind: str, job: str, n: int = 0, fence: int = 1, queue: str = SLOTS
) -> LedgerEntry:
    return LedgerEntry(kind, job, fence, [queue, "a", n], 1, at)


def test_the_judge_sees_a_job_too_many() -> None:
    entries = [slot(11.0 + n / 10, "entered", f"j{n}") for n in range(3)]
    entries += [slot(12.0 + n / 10, "left", f"j{n}") for n in range(3)]
    assert [wrong for wrong in judge_lanes(entries, {}) if "3 jobs run in lane a" in wrong]
    raised = LedgerEntry("limits", SLOTS, 0, [9, 3, "asked"], 1, 0.5)
    assert judge_lanes([raised, *entries], {}) == []
    lowered = [LedgerEntry("limits", SLOTS, 0, [9, 1, what], 1, at)
               for at, what in ((1.0, "asked"), (2.0, "changed"))]  # fmt: skip
    assert judge_lanes([*lowered, *entries[:2], *entries[3:5]], {})


def test_the_judge_knows_that_a_killed_worker_holds_no_slot() -> None:
    entries = [slot(1.0, "entered", "j0"), slot(1.1, "entered", "j1"), slot(3.0, "entered", "j2")]
    assert judge_lanes(entries, {1: 5.0})
    assert judge_lanes(entries, {1: 1.5}) == []


def test_the_judge_sees_a_broken_order() -> None:
    def told(*steps: tuple[str, int]) -> list[LedgerEntry]:
        return [slot(float(at), kind, f"j{n}", n, queue=ORDERED)
                for at, (kind, n) in enumerate(steps)]  # fmt: skip

    right = told(("entered", 0), ("failed", 0), ("entered", 0), ("left", 0), ("entered", 1),
                 ("left", 1))  # fmt: skip
    assert judge_lanes(right, {}) == []
    wrong = told(("entered", 0), ("failed", 0), ("entered", 1), ("left", 1), ("entered", 0),
                 ("left", 0))  # fmt: skip
    assert judge_lanes(wrong, {}) == ["I6: 1 began in lane a before 0 had ended"]


def test_the_judge_sees_a_lane_that_stands_still() -> None:
    late = IDLE_LIMIT_S + 2.0
    entries = [slot(1.0, "entered", "j0"), slot(late, "entered", "j0", fence=2),
               slot(late + 1, "left", "j0", fence=2)]  # fmt: skip
    assert "idle" in judge_lanes(entries, {1: 1.0})[0]
