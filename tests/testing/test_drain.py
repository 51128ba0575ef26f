"""Drain: a test runs its jobs in process, on the real store, and time passes without sleeping."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from outlast import (
    BatchFailed,
    Breaker,
    Context,
    DependencyDown,
    InvalidOption,
    Outlast,
    Permanent,
    Retry,
    RetryLater,
    SignalTimeout,
    group,
)
from outlast.testing import JobsFailed, NotIdle, adrain, advance, drain, now


def test_jobs_and_those_that_they_enqueue_run_until_nothing_is_due(ol: Outlast) -> None:
    ran: list[str] = []

    @ol.task
    def parent(ctx: Context) -> None:
        ran.append("parent")
        ctx.enqueue(child.job())

    @ol.task
    async def child() -> None:
        ran.append("child")

    parent.enqueue()
    drained = drain(ol)
    assert (drained.succeeded, drained.dead, drained.retried, drained.left) == (2, 0, 0, {})
    assert ran == ["parent", "child"]


def test_jobs_run_one_at_a_time_in_the_order_of_their_queue(ol: Outlast) -> None:
    ran: list[int] = []

    @ol.task
    def numbered(n: int) -> None:
        ran.append(n)

    for n in range(8):
        numbered.using(priority=n % 2).enqueue(n)
    drain(ol)
    assert ran == [1, 3, 5, 7, 0, 2, 4, 6]


def test_a_failure_is_collected_with_its_traceback(ol: Outlast) -> None:
    @ol.task(retry=Retry(max_attempts=2, base=60))
    def broken() -> None:
        raise ValueError("the printer is on fire")

    job = broken.enqueue()
    drained = drain(ol)
    assert (drained.succeeded, drained.dead, drained.retried) == (0, 0, 1)
    assert drained.left == {"scheduled": 1}
    (failure,) = drained.failures
    assert (failure.job, failure.task, failure.attempt) == (job.id, "broken", 1)
    assert (failure.type, failure.message) == ("ValueError", "the printer is on fire")
    assert "raise ValueError" in failure.traceback


def test_a_failure_raises_if_asked_to(ol: Outlast) -> None:
    @ol.task
    def broken() -> None:
        raise Permanent("no such customer")

    broken.enqueue()
    with pytest.raises(JobsFailed, match="no such customer") as failed:
        drain(ol, raises=True)
    assert failed.value.drained.dead == 1


def test_retries_run_at_their_own_time_without_sleeping(ol: Outlast) -> None:
    moments: list[datetime] = []

    @ol.task(retry=Retry(max_attempts=3, base=3600, cap=86400, jitter=0))
    def flaky(ctx: Context) -> str:
        started = ctx.job.started_at
        assert started is not None
        moments.append(started)
        if ctx.attempt < 3:
            raise ConnectionError("later")
        return "at last"

    job = flaky.enqueue()
    began = time.monotonic()
    drained = drain(ol, "1d")
    assert time.monotonic() - began < 20
    assert (drained.succeeded, drained.retried) == (1, 2)
    assert ol.result(job.id, timeout=0) == "at last"
    first, second = moments[1] - moments[0], moments[2] - moments[1]
    assert timedelta(hours=1) <= first < timedelta(hours=1, minutes=1)
    assert timedelta(hours=2) <= second < timedelta(hours=2, minutes=1)


def test_the_clock_of_the_store_moves_and_that_of_the_machine_does_not(ol: Outlast) -> None:
    before = now(ol)
    assert abs((before - datetime.now(UTC)).total_seconds()) < 60
    after = advance(ol, timedelta(days=30))
    assert timedelta(days=30) <= after - before < timedelta(days=30, minutes=1)
    assert abs((before - datetime.now(UTC)).total_seconds()) < 60


def test_a_delayed_job_is_left_until_its_time_has_come(ol: Outlast) -> None:
    @ol.task
    def later() -> None: ...

    later.using(delay=600).enqueue()
    assert drain(ol).left == {"scheduled": 1}
    advance(ol, "9m")
    assert drain(ol).succeeded == 0
    advance(ol, "1m")
    assert drain(ol).succeeded == 1


def test_a_schedule_fires_once_per_tick_with_its_nominal_time(ol: Outlast) -> None:
    ticks: list[datetime | None] = []

    @ol.task(cron="30 2 * * *")
    def nightly(ctx: Context) -> None:
        ticks.append(ctx.tick)

    start = now(ol)
    drained = drain(ol, "3d")
    assert drained.succeeded == 3
    assert [(tick.hour, tick.minute) for tick in ticks if tick] == [(2, 30)] * 3
    assert ticks == sorted({tick for tick in ticks if tick})
    assert timedelta(days=3) <= now(ol) - start < timedelta(days=3, minutes=1)


def test_until_finished_goes_as_far_as_jobs_need_and_leaves_schedules(ol: Outlast) -> None:
    ran: list[str] = []

    @ol.task(cron="0 0 1 1 *")
    def new_year() -> None:
        ran.append("new year")

    @ol.task
    def reminder() -> None:
        ran.append("reminder")

    reminder.using(delay=60).enqueue()
    reminder.using(delay=120).enqueue()
    drained = drain(ol, "finished")
    assert (drained.succeeded, drained.left) == (2, {})
    assert ran == ["reminder", "reminder"]


def test_until_a_moment_stops_the_clock_there(ol: Outlast) -> None:
    end = now(ol) + timedelta(hours=5)
    drain(ol, end)
    assert timedelta(0) <= now(ol) - end < timedelta(minutes=1)


def test_an_expired_job_ends_when_its_time_is_over(ol: Outlast) -> None:
    @ol.task
    def perishable() -> None: ...

    job = perishable.using(delay=7200, expires=3600).enqueue()
    drained = drain(ol, "3h")
    assert (drained.succeeded, drained.left) == (0, {})
    assert ol.job(job.id).state == "cancelled"


def test_a_flow_runs_to_its_end(ol: Outlast) -> None:
    @ol.task
    def part(n: int) -> int:
        return n

    @ol.task
    def total(ctx: Context) -> int:
        return sum(ctx.results())

    *_, last = ol.enqueue(group(part.job(1), part.job(2)).then(total.job()))
    assert drain(ol).succeeded == 3
    assert ol.result(last.id, timeout=0) == 3


def test_a_rate_limit_holds_jobs_back_until_time_passes(ol: Outlast) -> None:
    ol.queue("mail", rate="1/m", burst=1)

    @ol.task(queue="mail")
    def send() -> None: ...

    for _ in range(3):
        send.enqueue()
    assert drain(ol).succeeded == 1
    drained = drain(ol, "finished")
    assert (drained.succeeded, drained.left) == (2, {})


def test_an_open_breaker_is_probed_when_time_passes(ol: Outlast) -> None:
    up = False

    @ol.task(breaker=Breaker())
    def call() -> None:
        if not up:
            raise DependencyDown("the bank is closed")

    for _ in range(4):
        call.enqueue()
    assert drain(ol).succeeded == 0
    up = True
    drained = drain(ol, "finished")
    assert (drained.succeeded, drained.left) == (4, {})


def test_items_of_a_batch_fail_alone(ol: Outlast) -> None:
    @ol.task(batch=10, retry=Retry(max_attempts=1))
    def store(rows: list[int]) -> None:
        raise BatchFailed({n: ValueError("odd") for n, row in enumerate(rows) if row % 2})

    for n in range(4):
        store.enqueue(n)
    drained = drain(ol)
    assert (drained.succeeded, drained.dead) == (2, 2)


def test_a_handler_learns_that_its_job_was_cancelled(ol: Outlast) -> None:
    @ol.task
    def endless(ctx: Context) -> None:
        ol.cancel(ctx.job.id)
        assert ctx.cancelled.wait(30)
        raise InterruptedError

    endless.enqueue()
    drained = drain(ol)
    assert (drained.cancelled, drained.failures) == (1, ())


def test_only_named_queues_are_drained(ol: Outlast) -> None:
    @ol.task
    def work() -> None: ...

    work.using(queue="a").enqueue()
    work.using(queue="b").enqueue()
    assert drain(ol, queues="a").left == {"ready": 1}


def test_jobs_of_unknown_tasks_and_paused_queues_are_left(ol: Outlast) -> None:
    other = Outlast(ol.store.address.url, schema=ol.store.address.schema)

    @other.task
    def unknown() -> None: ...

    @ol.task
    def known() -> None: ...

    unknown.enqueue()
    other.close()
    known.using(queue="paused").enqueue()
    ol.pause("paused")
    drained = drain(ol, "finished")
    assert (drained.attempts, drained.left) == (0, {"ready": 2})


def test_a_postponed_job_counts_as_retried(ol: Outlast) -> None:
    @ol.task
    def busy(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RetryLater(30)

    busy.enqueue()
    drained = drain(ol, "finished")
    assert (drained.succeeded, drained.retried) == (1, 1)


def test_a_job_that_enqueues_itself_for_ever_is_noticed(ol: Outlast) -> None:
    @ol.task
    def again(ctx: Context) -> None:
        ctx.enqueue(again.job())

    again.enqueue()
    with pytest.raises(NotIdle, match="more than 20 attempts"):
        drain(ol, limit=20)


def test_a_handler_that_does_not_end_is_named(ol: Outlast) -> None:
    release = threading.Event()

    @ol.task
    def stuck() -> None:
        release.wait(60)

    stuck.enqueue()
    try:
        with pytest.raises(NotIdle, match=r"running: stuck × 1"):
            drain(ol, timeout=0.5)
    finally:
        release.set()
    assert ol.counts()["running"] == 0  # released, unspent


async def test_adrain_runs_in_the_event_loop_of_an_async_test(ol: Outlast) -> None:
    loops: list[object] = []

    @ol.task
    async def work() -> None:
        loops.append(asyncio.get_running_loop())

    await work.aenqueue()
    assert (await adrain(ol)).succeeded == 1
    assert loops == [asyncio.get_running_loop()]
    with pytest.raises(InvalidOption, match="await adrain"):
        drain(ol)


def test_nobody_is_registered_after_a_drain(ol: Outlast) -> None:
    drain(ol)
    assert ol.workers() == []


@pytest.mark.parametrize("until", ["soon", -1, datetime(2030, 1, 1)])
def test_an_end_that_is_no_time_is_refused(ol: Outlast, until: object) -> None:
    with pytest.raises(InvalidOption):
        drain(ol, until)  # type: ignore[arg-type]


def test_a_retry_without_a_delay_runs_in_the_same_drain(ol: Outlast) -> None:
    attempts: list[int] = []

    @ol.task(retry=Retry(max_attempts=3, base=0, cap=0))
    def flaky(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError

    flaky.enqueue()
    assert drain(ol).succeeded == 1
    assert attempts == [1, 2, 3]


def test_sleeps_and_waits_pass_with_the_time(ol: Outlast) -> None:
    @ol.task
    def nap(ctx: Context) -> str:
        ctx.sleep("3d")
        return "awake"

    @ol.task
    def ask(ctx: Context) -> str:
        try:
            return f"got {ctx.wait('go', timeout='7d')}"
        except SignalTimeout:
            return "nobody answered"

    jobs = [nap.enqueue(), ask.enqueue(), ask.enqueue()]
    assert drain(ol).left == {"scheduled": 1, "waiting": 2}
    ol.signal(jobs[1].id, "go", 1)
    drain(ol, "finished")
    results = [ol.result(job.id, timeout=0) for job in jobs]
    assert results == ["awake", "got 1", "nobody answered"]
