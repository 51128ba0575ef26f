"""`outlast verify schedules`: a sample on both databases, and a judge that sees what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outlast.model.schedule import ScheduleSpec
from outlast.verify.checks.clock_history import ClockHistory, Reached
from outlast.verify.checks.kill_times import KillTimes
from outlast.verify.checks.schedule_history import TickJob
from outlast.verify.checks.schedules import FIRE_LAG_S, judge_schedules
from outlast.verify.ledger import LedgerEntry
from outlast.verify.schedule_load import planned_schedules
from tests.support import Processes
from tests.support.requirements import require_program
from tests.verify.running import PATIENCE, figures

NAME = "nightly"
END = 100.0  # when all schedules are paused, by the monotonic clock
TICKS = range(1_000_001, 1_000_100)  # of a second each, while it stands; 1,000,000 is 0 there
RIGHT_TIME = 1_000_000.0


def campaign(processes: Processes, folder: Path, *words: object) -> dict[str, Any]:
    """The figures of a campaign that found nothing wrong, and left nothing behind."""
    require_program("faketime")
    given = ["--seed", 1, "--json", *words]
    running = processes.python(
        "outlast", "verify", "schedules", *given, env={"TMPDIR": str(folder)}
    )
    said = figures(running.succeed(PATIENCE))
    assert said["violations"] == 0, said["wrong"]
    assert list(folder.glob("outlast-verify-*")) == []
    return said


@pytest.mark.quiet
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
@pytest.mark.timeout(300)
def test_each_tick_has_one_job_whoever_is_killed_and_wherever_the_clock_goes(
    processes: Processes, folder: Path, store: str
) -> None:
    """R153, R234, R235, R237: kills, an operator, and a clock that steps."""
    said = campaign(processes, folder, "--store", store, "--budget", 15, "--workers", 3)
    assert min(said["ticks"], said["kills"], said["calls"], said["steps"]) > 0


@pytest.mark.campaign
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.timeout(1800)
def test_ten_minutes_of_it(processes: Processes, store: str) -> None:
    """R153, R234, R235, R237: in whole size."""
    require_program("faketime")
    words = ["--store", store, "--budget", "10m", "--workers", 8, "--json"]
    processes.python("outlast", "verify", "schedules", *words).succeed(1700.0)


def test_every_policy_is_under_test() -> None:
    specs = [one.spec for one in planned_schedules() if one.steady]
    assert {(spec.missed, spec.overlap) for spec in specs} == {
        (missed, overlap)
        for missed in ("once", "none", "all")
        for overlap in ("allow", "skip", "queue", "cancel")
    }
    assert {spec.cron is None for spec in specs} == {True, False}


# The judge


def history(*calls: tuple[float, str, str, dict[str, Any]], **options: Any) -> list[LedgerEntry]:
    """A schedule that stands from the first second on, and is paused at the end."""
    spec = ScheduleSpec.of({"every": 1.0, "missed": "all", "overlap": "allow"} | options)
    facts = {**spec.as_json(), "next": None}
    steps = [(0.0, "stands", "done", {}), *calls, (END, "pause", "asked", {}),
             (END, "pause", "done", {})]  # fmt: skip
    told = [LedgerEntry("clock", "", 0, RIGHT_TIME, 1, 0.0)]
    return told + [
        LedgerEntry("schedule", NAME, 0, [action, stage, facts | more], 1, at)
        for at, action, stage, more in steps
    ]


def job(tick: float, *, late: float = 0.1, id: str = "", manual: bool = False) -> TickJob:
    return TickJob(id or f"j{tick:.0f}", NAME, tick, manual, tick + late)


def ran(job: TickJob, start: float, end: float, fence: int = 1, pid: int = 1) -> list[LedgerEntry]:
    """By the monotonic clock."""
    about = [NAME, "key"]
    return [LedgerEntry("entered", job.id, fence, about, pid, start),
            LedgerEntry("left", job.id, fence, about, pid, end)]  # fmt: skip


def clock(at: float, ahead: float) -> LedgerEntry:
    return LedgerEntry("clock", "", 0, RIGHT_TIME + ahead, 1, at)


def all_jobs(*without: float, step: int = 1) -> list[TickJob]:
    return [job(float(tick)) for tick in TICKS[::step] if tick not in without]


def test_a_right_history_is_right() -> None:
    assert judge_schedules(history(), all_jobs(), KillTimes()) == []


def test_the_judge_sees_two_jobs_of_one_tick() -> None:
    twin = job(1_000_050.0, id="twin")
    [wrong] = judge_schedules(history(), [*all_jobs(), twin], KillTimes())
    assert "2 jobs have the tick 1970-01-12T13:47:30Z" in wrong
    manual = job(1_000_050.0, id="manual", manual=True)
    assert judge_schedules(history(), [*all_jobs(), manual], KillTimes()) == []


def test_the_judge_sees_a_job_without_a_tick() -> None:
    unknown = TickJob("unknown", NAME, None, False, RIGHT_TIME)
    assert judge_schedules(history(), [*all_jobs(), unknown], KillTimes()) == [
        f"I7: {NAME}: no tick is known of unknown"
    ]


def test_the_judge_sees_a_tick_that_is_missing() -> None:
    missing = all_jobs(1_000_050.0)
    assert judge_schedules(history(), missing, KillTimes()) == [
        f"I7: {NAME}: no job has the tick 1970-01-12T13:47:30Z"
    ]
    assert (
        judge_schedules(history(missed="once"), missing, KillTimes()) == []
    )  # a later one came instead


@pytest.mark.parametrize("missed", ["once", "none"])
def test_the_judge_sees_a_schedule_that_stands_still(missed: str) -> None:
    gap = [float(tick) for tick in TICKS if 40 <= tick - RIGHT_TIME < 42 + 2 * FIRE_LAG_S]
    found = judge_schedules(history(missed=missed), all_jobs(*gap), KillTimes())
    assert found
    assert all("no job has the tick" in wrong for wrong in found)


def test_the_judge_excuses_a_tick_that_came_during_an_earlier_run() -> None:
    lonely = [job(float(tick)) for tick in TICKS if tick < 1_000_020 or tick > 1_000_060]
    assert judge_schedules(history(overlap="skip"), lonely, KillTimes())
    long = [*history(overlap="skip"), *ran(lonely[18], 19.5, 60.5)]
    assert judge_schedules(long, lonely, KillTimes()) == []


def test_the_judge_knows_what_an_operator_left_out() -> None:
    skip = [(50.2, "skip", "asked", {"n": 2}),
            (50.3, "skip", "done", {"n": 2, "next": 1_000_053.0})]  # fmt: skip
    left_out = all_jobs(1_000_051.0, 1_000_052.0)
    assert judge_schedules(history(*skip), left_out, KillTimes()) == []
    [wrong] = judge_schedules(history(*skip), [*left_out, job(1_000_052.0)], KillTimes())
    assert "fired although it was skipped" in wrong


def test_the_judge_sees_a_schedule_that_fires_during_a_pause() -> None:
    calls = [(at, action, stage, {}) for at, action in ((30.0, "pause"), (60.0, "resume"))
             for stage in ("asked", "done")]  # fmt: skip
    paused = [float(tick) for tick in TICKS if 30 < tick - RIGHT_TIME <= 60]
    assert judge_schedules(history(*calls), all_jobs(*paused), KillTimes()) == []
    [wrong] = judge_schedules(history(*calls), [*all_jobs(*paused), job(1_000_045.0)], KillTimes())
    assert "fired during a pause" in wrong
    backfill = (61.0, "backfill", "asked", {"start": 1_000_040.0, "end": 1_000_050.0})
    filled = [*all_jobs(*paused), job(1_000_045.0)]
    assert judge_schedules(history(*calls, backfill), filled, KillTimes()) == []


def test_the_judge_follows_a_change_of_the_period() -> None:
    calls = [(50.0, "change", stage, {"every": 2.0}) for stage in ("asked", "done")]
    odd = [float(tick) for tick in TICKS if tick > 1_000_050 and tick % 2]
    assert judge_schedules(history(*calls), all_jobs(*odd), KillTimes()) == []
    assert judge_schedules(history(), all_jobs(*odd), KillTimes())


def test_the_judge_sees_a_tick_after_its_grace_time() -> None:
    spec = {"missed": "none", "grace": 3.0}
    late = [*all_jobs(1_000_050.0), job(1_000_050.0, late=5.0)]
    [wrong] = judge_schedules(history(**spec), late, KillTimes())
    assert "fired 5.0 s late" in wrong
    assert judge_schedules(history(**spec | {"missed": "once"}), late, KillTimes()) == []


def test_a_step_in_the_middle_of_a_firing_does_not_make_it_late() -> None:
    spec = {"every": 5.0, "missed": "none", "grace": 3.0}
    ahead = [clock(50.2, 40.0), clock(60.0, 0.0)]
    stepped = [*all_jobs(1_000_050.0, step=5), job(1_000_050.0, late=40.3)]
    assert not [wrong for wrong in judge_schedules([*history(**spec), *ahead], stepped, KillTimes())
                if "late" in wrong]  # fmt: skip
    really = [*all_jobs(1_000_085.0, step=5), job(1_000_085.0, late=5.4)]
    [wrong] = [wrong for wrong in judge_schedules([*history(**spec), *ahead], really, KillTimes())
               if "late" in wrong]  # fmt: skip
    assert "fired 5.4 s late" in wrong


@pytest.mark.parametrize(
    ("overlap", "end", "wrong"),
    [("skip", 51.5, True), ("queue", 51.5, True), ("skip", 51.0, False), ("allow", 51.5, False),
     ("cancel", 51.5, False), ("cancel", 65.0, True)],
)  # fmt: skip
def test_the_judge_sees_runs_that_overlap(overlap: str, end: float, wrong: bool) -> None:
    jobs = all_jobs()
    first, second = (one for one in jobs if one.tick in (1_000_050.0, 1_000_051.0))
    told = [*history(overlap=overlap), *ran(first, 50.1, end), *ran(second, 51.1, 66.0)]
    found = [each for each in judge_schedules(told, jobs, KillTimes()) if "ran at once" in each]
    assert bool(found) == wrong


def test_the_judge_knows_that_a_killed_worker_runs_nothing() -> None:
    jobs = all_jobs()
    first, second = (one for one in jobs if one.tick in (1_000_050.0, 1_000_051.0))
    entered = ran(first, 50.1, 0.0, pid=7)[:1]
    told = [*history(overlap="skip"), *entered, *ran(second, 52.0, 53.0)]
    assert [each for each in judge_schedules(told, jobs, KillTimes((7, 60.0))) if "at once" in each]
    assert judge_schedules(told, jobs, KillTimes((7, 51.0))) == []


def test_the_judge_sees_more_than_one_run_in_the_queue() -> None:
    jobs = all_jobs()
    waiting = [one for one in jobs if one.tick and one.tick >= 1_000_097.0]
    runs = [ran(one, 101.5 + n, 102.0 + n) for n, one in enumerate(waiting)]
    one_left = [*history(overlap="queue"), *runs[0]]
    assert judge_schedules(one_left, jobs, KillTimes()) == []
    [wrong] = judge_schedules([*one_left, *runs[1], *runs[2]], jobs, KillTimes())
    assert "3 runs were waiting at a pause" in wrong


# The clock


def test_a_clock_that_steps_reaches_a_moment_again() -> None:
    """Ahead by 30 at 10, and back at 20."""
    stepped = ClockHistory([(0.0, 100.0), (10.0, 130.0), (20.0, 100.0)])
    assert [stepped.shown(at) for at in (5.0, 10.0, 19.0, 20.0)] == [105.0, 140.0, 149.0, 120.0]
    assert stepped.reached(105.0) == [Reached(5.0, False)]
    assert stepped.reached(125.0) == [Reached(10.0, True), Reached(25.0, False)]
    assert stepped.reached(145.0) == [Reached(15.0, False), Reached(45.0, False)]
    assert stepped.went_back(15.0, 25.0)
    assert not stepped.went_back(5.0, 15.0)


def test_the_judge_wants_ticks_that_the_clock_jumped_over() -> None:
    """All of them with missed="all"; else the latest, and the others when their time comes."""
    steps = [clock(40.0, 30.0), clock(50.0, 0.0)]
    assert judge_schedules([*history(), *steps], all_jobs(), KillTimes()) == []
    jumped = [float(tick) for tick in TICKS if 52 <= tick - RIGHT_TIME <= 69]
    assert judge_schedules([*history(), *steps], all_jobs(1_000_060.0), KillTimes())
    stands_still = judge_schedules(
        [*history(missed="once"), *steps], all_jobs(*jumped), KillTimes()
    )
    assert any("no job has the tick" in wrong for wrong in stands_still)
