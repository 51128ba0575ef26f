"""`outlast verify lanes`: a sample on both databases, and a judge that sees what is wrong."""

from __future__ import annotations

import pytest

from outlast.verify.checks.kill_times import KillTimes
from outlast.verify.checks.lanes import IDLE_LIMIT_S, judge_lanes
from outlast.verify.lane_load import (
    JOBS_PER_CALL,
    ORDERED,
    SLOTS,
    SLOW_LANES,
    WIDE,
    LaneBacklog,
)
from outlast.verify.ledger import LedgerEntry
from tests.support import Database, Processes
from tests.verify.running import run, start
from tests.verify.test_crash import left


@pytest.mark.slow
@pytest.mark.quiet
def test_limits_and_order_hold_while_workers_are_killed(
    processes: Processes, database: Database
) -> None:
    """R147, R238, R240: kills, failures, and limits changed meanwhile; by the history. (Quiet: that
    jobs do not wait where there is room is a matter of seconds.)"""
    said = run(processes, "lanes", database, "--seed", 1, "--points", 400, "--budget", 8)
    assert said["violations"] == 0, said["wrong"]
    assert said["runs"] > 0
    assert left(database) == []


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.kinds("postgres")
def test_limits_and_order_hold_under_an_old_snapshot(
    processes: Processes, database: Database
) -> None:
    """R238, R241: another transaction keeps the entries of all jobs that have run."""
    words = ("--old-snapshot", "--seed", 2, "--points", 400, "--budget", 8)
    said = run(processes, "lanes", database, *words)
    assert said["violations"] == 0, said["wrong"]
    assert said["runs"] > 0
    assert left(database) == []


@pytest.mark.kinds("sqlite")
def test_an_old_snapshot_is_for_postgres(processes: Processes, database: Database) -> None:
    refused = start(processes, "lanes", "--url", database.url, "--old-snapshot")
    assert refused.wait() == 2
    assert "--old-snapshot is for PostgreSQL" in refused.output()


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
    assert [wrong for wrong in judge_lanes(entries, KillTimes()) if "3 jobs run in lane a" in wrong]
    raised = LedgerEntry("limits", SLOTS, 0, [9, 3, "asked"], 1, 0.5)
    assert judge_lanes([raised, *entries], KillTimes()) == []
    lowered = [LedgerEntry("limits", SLOTS, 0, [9, 1, what], 1, at)
               for at, what in ((1.0, "asked"), (2.0, "changed"))]  # fmt: skip
    assert judge_lanes([*lowered, *entries[:2], *entries[3:5]], KillTimes())


def test_the_judge_knows_that_a_killed_worker_holds_no_slot() -> None:
    entries = [slot(1.0, "entered", "j0"), slot(1.1, "entered", "j1"), slot(3.0, "entered", "j2")]
    assert judge_lanes(entries, KillTimes((1, 5.0)))
    assert judge_lanes(entries, KillTimes((1, 1.5))) == []
    reused = KillTimes((1, 1.5), (1, 90.0))  # a later process with the same id
    assert judge_lanes(entries, reused) == []


def test_the_judge_sees_a_broken_order() -> None:
    def told(*steps: tuple[str, int]) -> list[LedgerEntry]:
        return [slot(float(at), kind, f"j{n}", n, queue=ORDERED)
                for at, (kind, n) in enumerate(steps)]  # fmt: skip

    right = told(("entered", 0), ("failed", 0), ("entered", 0), ("left", 0), ("entered", 1),
                 ("left", 1))  # fmt: skip
    assert judge_lanes(right, KillTimes()) == []
    wrong = told(("entered", 0), ("failed", 0), ("entered", 1), ("left", 1), ("entered", 0),
                 ("left", 0))  # fmt: skip
    assert judge_lanes(wrong, KillTimes()) == ["I6: 1 began in lane a before 0 had ended"]


def test_the_judge_sees_a_job_that_waits_for_its_dead_worker() -> None:
    late = IDLE_LIMIT_S + 2.0
    entries = [slot(1.0, "entered", "j0", queue=WIDE), slot(late, "entered", "j0", 0, 2, WIDE),
               slot(late + 1, "left", "j0", 0, 2, WIDE)]  # fmt: skip
    assert judge_lanes(entries, KillTimes((1, 3.0))) == []
    [wrong] = judge_lanes(entries, KillTimes((1, 1.5)))
    assert "lane a of wide was idle for 10.5 s" in wrong


def queued(at: float, job: str, queue: str = WIDE, lane: str = "a") -> LedgerEntry:
    return LedgerEntry("queued", job, 0, [queue, lane], 1, at)


@pytest.mark.parametrize("queue", [WIDE, ORDERED, SLOTS])
def test_the_judge_sees_a_lane_that_stands_still(queue: str) -> None:
    """Jobs wait, and none begins; in a queue with a limit of its own, nowhere in it."""
    late = IDLE_LIMIT_S + 2.0
    entries = [queued(1.0, "j0", queue), queued(1.1, "j1", queue)]
    for n in range(2):
        entries += [slot(late + n, "entered", f"j{n}", n, queue=queue),
                    slot(late + n + 0.5, "left", f"j{n}", n, queue=queue)]  # fmt: skip
    [wrong] = judge_lanes(entries, KillTimes())
    assert "was idle for 11.0 s while jobs waited" in wrong
    between = slot(6.0, "entered", "j9", -1, queue=queue), slot(6.1, "left", "j9", -1, queue=queue)
    assert judge_lanes([*entries, *between], KillTimes()) == []


def test_the_judge_sees_a_lane_that_is_never_full() -> None:
    """A job at a time, where two may run and many wait."""
    slow, entries = SLOW_LANES[0], [queued(0.0, f"j{n}", lane=SLOW_LANES[0]) for n in range(60)]
    for n in range(60):
        entries += [LedgerEntry(kind, f"j{n}", 1, [WIDE, slow, n], 1, at)
                    for kind, at in (("entered", n / 3 + 0.1), ("left", n / 3 + 0.4))]  # fmt: skip
    [wrong] = judge_lanes(entries, KillTimes())
    assert f"lane {slow} of wide ran fewer than 2 jobs for" in wrong
    lowered = [LedgerEntry("limits", WIDE, 0, [None, 1, what], 1, 0.05)
               for what in ("asked", "changed")]  # fmt: skip
    assert judge_lanes([*lowered, *entries], KillTimes()) == []


def test_a_slow_machine_has_few_jobs_that_wait() -> None:
    """R238: else lanes would wait because there are too few workers, and not for a slot."""
    backlog = LaneBacklog()
    assert backlog.has_room(0, 0.0)
    backlog.asked = 400
    assert not backlog.has_room(400, 0.0)
    assert not backlog.has_room(300, 5.0)  # 20 have ended in each second
    assert backlog.has_room(JOBS_PER_CALL, 7.0)
    backlog.asked = 2400
    assert not backlog.has_room(1400, 8.0)
    assert backlog.has_room(500, 10.0)  # and now 320
