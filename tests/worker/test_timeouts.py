"""Handlers that are told to stop: by their timeout, or because somebody cancelled the job."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from outlast import ClaimLost, Context, JobCancelled, Outlast, Retry
from tests.support import aeventually, eventually

from .working import SLACK, TIMINGS, ended, started, work

ONCE = Retry(max_attempts=1)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets go the threads that a test has left behind."""
    event = threading.Event()
    yield event
    event.set()


async def test_an_async_handler_is_cancelled_at_its_timeout(ol: Outlast) -> None:
    """R032: while its heart beats; the attempt is recorded as timed out, and retried by policy."""
    cancelled: list[float] = []

    @ol.task(timeout=0.6, retry=Retry(max_attempts=2, base=0.0, jitter=0.0))
    async def hangs(ctx: Context) -> str:
        began = time.monotonic()
        try:
            await asyncio.sleep(60 if ctx.attempt == 1 else 0)
        except asyncio.CancelledError:
            cancelled.append(time.monotonic() - began)
            assert ctx.cancelled.is_set()
            raise
        return "the second time"

    async with work(ol):
        job = await hangs.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == "the second time"
    assert len(cancelled) == 1 and 0.54 <= cancelled[0] <= 0.66 + SLACK
    attempts, _ = await ol.ahistory(job.id)
    assert [each.outcome for each in attempts] == ["timed-out", "succeeded"]
    assert "longer than its timeout of 0.6 s" in attempts[0].error["message"]


async def test_a_thread_that_ignores_its_timeout_is_abandoned_and_can_do_no_harm(
    ol: Outlast, release: threading.Event
) -> None:
    """R032: its job ends timed out after the grace time, its place comes back when it returns, and
    what it says afterwards is refused."""
    said: list[str] = []

    @ol.task(timeout=0.5, retry=ONCE)
    def deaf(ctx: Context) -> str:
        release.wait(30)
        try:
            ctx.progress(1)
        except ClaimLost:
            said.append("lost")
        return "too late"

    @ol.task
    async def quick() -> str:
        return "quick"

    async with work(ol, concurrency=2, cancel_grace=0.3) as worker:
        job = await deaf.aenqueue()
        dead = await ended(ol, job)
        assert dead.finished_at is not None and dead.started_at is not None
        ran = (dead.finished_at - dead.started_at).total_seconds()
        assert dead.state == "dead" and 0.75 <= ran <= 0.8 * 1.1 + SLACK
        assert dead.error is not None and dead.error["type"] == "TimedOut"
        assert worker.executor.abandoned_threads == 1, "its thread is still taken"
        assert await ol.aresult((await quick.aenqueue()).id, timeout=10) == "quick"
        release.set()
        await aeventually(lambda: worker.executor.abandoned_threads == 0)
    assert said == ["lost"]
    assert (await ol.ajob(job.id)).result is None
    _, events = await ol.ahistory(job.id)
    assert events == []


@pytest.mark.kinds("sqlite")
async def test_a_handler_that_blocks_the_event_loop_loses_its_job_at_its_timeout(
    ol: Outlast,
) -> None:
    """R032: nothing can stop it there, but its job is not its hostage."""
    given_up = threading.Event()

    @ol.task(timeout=0.3, retry=Retry(max_attempts=2, base=0.0, jitter=0.0))
    async def blocks(ctx: Context) -> int:
        if ctx.attempt == 1:
            assert given_up.wait(30)
        return ctx.attempt

    job = await blocks.aenqueue()

    def watch() -> None:
        """The test's own loop is the one that is blocked."""
        eventually(lambda: (now := ol.job(job.id)).attempt and now.state != "running", timeout=30)
        given_up.set()

    watching = threading.Thread(target=watch)
    watching.start()
    async with work(ol, cancel_grace=0.1):
        assert await ol.aresult(job.id, timeout=60) == 2
    watching.join()
    assert given_up.is_set(), "while the loop was still blocked"
    attempts, _ = await ol.ahistory(job.id)
    assert [each.outcome for each in attempts] == ["timed-out", "succeeded"]


async def test_a_running_job_is_told_of_its_cancel_and_ends_cancelled(ol: Outlast) -> None:
    """R115: at the next heartbeat at the latest; what it was doing stops."""
    told: list[float] = []
    effects: list[int] = []

    @ol.task
    async def busy(ctx: Context) -> None:
        try:
            while True:
                effects.append(1)
                await asyncio.sleep(0.01)
        finally:
            told.append(time.monotonic())

    async with work(ol):
        job = await busy.aenqueue()
        await aeventually(lambda: effects)
        asked_at = time.monotonic()
        await ol.acancel(job.id, "changed my mind")
        assert (await ended(ol, job)).state == "cancelled"
        assert told[0] - asked_at < TIMINGS["renew_every"] + 0.5 + SLACK
        number = len(effects)
        await asyncio.sleep(0.1)
        assert len(effects) == number
        with pytest.raises(JobCancelled):
            await ol.aresult(job.id)
    attempts, events = await ol.ahistory(job.id)
    assert [each.outcome for each in attempts] == ["cancelled"]
    assert [event.kind for event in events] == ["cancel"]


@pytest.mark.kinds("sqlite")
async def test_a_thread_that_ignores_its_cancel_is_cancelled_after_the_grace_time(
    ol: Outlast, release: threading.Event
) -> None:
    """R115: forced after grace; one that looks at ctx.cancelled ends at once."""

    @ol.task
    def deaf() -> None:
        release.wait(30)

    @ol.task
    def polite(ctx: Context) -> None:
        assert ctx.cancelled.wait(30)
        raise RuntimeError("as I was told")

    async with work(ol, cancel_grace=0.5) as worker:
        jobs = await ol.aenqueue(deaf.job(), polite.job())
        for job in jobs:
            await started(ol, job)
        asked_at = time.monotonic()
        for job in jobs:
            await ol.acancel(job.id)
        assert (await ended(ol, jobs[1])).state == "cancelled"
        assert (await ended(ol, jobs[0])).state == "cancelled"
        assert time.monotonic() - asked_at < TIMINGS["renew_every"] + 0.5 + 0.5 + SLACK
        assert worker.counts["abandoned"] == 1
        release.set()


async def test_a_cancel_that_comes_when_the_work_is_done_changes_nothing(ol: Outlast) -> None:
    """R118: a handler that finishes all the same has succeeded; exactly one of the two wins."""

    @ol.task
    async def stubborn(ctx: Context) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "done anyway"
        return "never"

    async with work(ol):
        job = await stubborn.aenqueue()
        await started(ol, job)
        await ol.acancel(job.id)
        done = await ended(ol, job)
    assert (done.state, done.result) == ("succeeded", "done anyway")


def _waits(ctx: Context) -> bool:
    return ctx.cancelled.wait(30)


def _polls(ctx: Context) -> bool:
    while not ctx.cancelled.is_set():
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("sees", [_waits, _polls])
async def test_a_handler_that_sees_that_it_should_stop_and_returns_nothing_has_stopped(
    ol: Outlast, sees: Callable[[Context], bool]
) -> None:
    """R115, R032: cancelled, or timed out. One with a result has done its work."""

    @ol.task(retry=ONCE)
    def stops(ctx: Context) -> None:
        assert sees(ctx)

    @ol.task(retry=ONCE)
    def finishes(ctx: Context) -> str:
        assert sees(ctx)
        return "done"

    async with work(ol):
        late = await stops.using(timeout=0.5).aenqueue()
        jobs = await ol.aenqueue(stops.job(), finishes.job())
        for job in jobs:
            await started(ol, job)
            await ol.acancel(job.id)
        done = [await ended(ol, job) for job in (*jobs, late)]
    assert [(job.state, job.result) for job in done] == [
        ("cancelled", None),
        ("succeeded", "done"),
        ("dead", None),
    ]
    attempts, _ = await ol.ahistory(late.id)
    assert [each.outcome for each in attempts] == ["timed-out"]


async def test_a_handler_that_stops_at_a_shutdown_runs_again(ol: Outlast) -> None:
    """R182: half of its work is not taken for all of it."""

    @ol.task(retry=ONCE)
    def stops(ctx: Context) -> None:
        assert ctx.cancelled.wait(30)

    async with work(ol, grace=0.1):
        job = await stops.aenqueue()
        await started(ol, job)
    again = await ol.ajob(job.id)
    assert (again.state, again.attempt, again.failures) == ("ready", 0, 0)


async def test_a_handler_that_has_not_looked_has_done_its_work(ol: Outlast) -> None:
    """R118: nobody knows better."""
    go, asked = threading.Event(), list[bool]()

    @ol.task(retry=ONCE)
    def busy(ctx: Context) -> None:
        asked.append(ctx.cancelled.is_set())
        go.wait(30)

    async with work(ol) as worker:
        job = await busy.aenqueue()
        await started(ol, job)
        await ol.acancel(job.id)
        held = worker.in_flight.get(job.id)
        assert held is not None
        await aeventually(lambda: held.execution is not None and held.execution.stopped)
        go.set()
        assert (await ended(ol, job)).state == "succeeded"
    assert asked == [False]


async def test_a_cancelled_job_that_fails_is_not_tried_again(ol: Outlast) -> None:
    """R115: the request turns every way back to work into cancelled."""
    gate = asyncio.Event()

    @ol.task(retry=Retry(max_attempts=5, base=0.0, jitter=0.0))
    async def fails() -> None:
        await gate.wait()
        raise OSError("broken")

    async with work(ol, lease=60.0, renew_every=20.0) as worker:
        job = await fails.aenqueue()
        await started(ol, job)
        worker.leases.renew_now = lambda: None  # type: ignore[method-assign] - news of it are lost
        await ol.acancel(job.id)
        gate.set()
        assert (await ended(ol, job)).state == "cancelled"
