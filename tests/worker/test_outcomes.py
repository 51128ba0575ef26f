"""How attempts end, and what becomes of their jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from outlast import (
    Context,
    Job,
    JobDead,
    NotAttempted,
    Outlast,
    Permanent,
    Retry,
    RetryLater,
    TooLate,
)
from tests.support import aeventually

from .working import ended, work

QUICK = Retry(max_attempts=3, base=0.01, cap=0.01, jitter=0.0)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Odd(BaseException):
    pass


ODDITIES: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration("the end"),
    "TimeoutError": TimeoutError,
    "Mute": Mute,
    "Odd": lambda: Odd("NUL \0 and half a letter \ud800"),
    "ValueError": lambda: ValueError("x" * 3_000_000),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("two", [SystemExit(1), ValueError("b")]),
}


async def test_whatever_a_handler_raises_is_a_failed_attempt_and_the_worker_lives(
    ol: Outlast,
) -> None:
    """R023, R041: also what ends programs, in a thread as on the event loop."""

    @ol.task(max_attempts=1)
    async def raises(what: str) -> None:
        raise ODDITIES[what]()

    @ol.task(max_attempts=1)
    def raises_in_thread(what: str) -> None:
        raise ODDITIES[what]()

    @ol.task
    async def fine() -> str:
        return "fine"

    async with work(ol):
        calls = [task.job(what) for task in (raises, raises_in_thread) for what in ODDITIES]
        for job in await ol.aenqueue(*calls):
            dead = await ended(ol, job)
            attempts, _ = await ol.ahistory(job.id)
            assert (dead.state, [each.outcome for each in attempts]) == ("dead", ["failed"])
            assert dead.error is not None
            assert dead.args["what"] in dead.error["type"] + dead.error["traceback"]
            assert len(str(dead.error)) < 30_000
        assert await ol.aresult((await fine.aenqueue()).id, timeout=10) == "fine"


async def test_transient_errors_are_retried_and_each_attempt_is_on_record(ol: Outlast) -> None:
    """R011, R048, R051, R059: one job id, attempts 1, 2, 3, and what became of each."""
    seen: list[tuple[str, int]] = []

    @ol.task(retry=QUICK)
    async def fails(secret: str, ctx: Context) -> None:
        seen.append((ctx.job.id, ctx.attempt))
        raise ConnectionError(f"try {ctx.attempt}")

    async with work(ol) as worker:
        job = await fails.aenqueue("kept")
        dead = await ended(ol, job)
    assert seen == [(job.id, 1), (job.id, 2), (job.id, 3)]
    assert (dead.state, dead.attempt, dead.failures) == ("dead", 3, 3)
    assert dead.args == {"secret": "kept"}
    assert dead.error is not None and dead.error["message"] == "try 3"
    assert "raise ConnectionError" in dead.error["traceback"]
    attempts, _ = await ol.ahistory(job.id)
    assert [each.attempt for each in attempts] == [1, 2, 3]
    assert [each.error["message"] for each in attempts] == ["try 1", "try 2", "try 3"]
    for each in attempts:
        assert (each.outcome, each.worker) == ("failed", worker.id)
        assert each.started_at is not None and each.finished_at is not None
        assert each.started_at <= each.finished_at


async def test_a_success_after_failures_is_a_success_with_its_history(ol: Outlast) -> None:
    """R059"""

    @ol.task(retry=QUICK)
    def third_time(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise OSError("not yet")
        return ctx.attempt

    async with work(ol):
        job = await third_time.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 3
    attempts, _ = await ol.ahistory(job.id)
    assert [each.outcome for each in attempts] == ["failed", "failed", "succeeded"]


class Refused(Permanent):
    """A user's own kind of permanent error."""


async def test_a_permanent_error_is_not_retried(ol: Outlast) -> None:
    """R048: one attempt, whatever the policy says; the kind is extensible."""

    @ol.task(retry=QUICK)
    async def hopeless(own: bool) -> None:
        raise Refused("never") if own else Permanent("never")

    async with work(ol):
        for job in await ol.aenqueue(hopeless.job(True), hopeless.job(False)):
            with pytest.raises(JobDead, match="never"):
                await ol.aresult(job.id, timeout=10)
            dead = await ol.ajob(job.id)
            assert (dead.attempt, dead.failures) == (1, 1)


async def test_retry_later_spends_no_failure(ol: Outlast) -> None:
    """R057: it is called again as often as it asks, on a budget of one."""

    @ol.task(max_attempts=1)
    async def polite(ctx: Context) -> int:
        if ctx.attempt < 4:
            raise RetryLater(0.05, "busy")
        return ctx.attempt

    async with work(ol):
        job = await polite.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 4
    done = await ol.ajob(job.id)
    assert done.failures == 0
    attempts, _ = await ol.ahistory(job.id)
    assert [each.outcome for each in attempts] == [*["postponed"] * 3, "succeeded"]


async def test_a_single_job_that_was_not_attempted_pauses(ol: Outlast) -> None:
    """R047: it goes back unspent, and is not claimed again in a tight loop."""
    calls: list[float] = []

    @ol.task(max_attempts=1)
    async def idle() -> int:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise NotAttempted
        return len(calls)

    async with work(ol):
        job = await idle.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 2
    assert calls[1] - calls[0] >= 1.0
    done = await ol.ajob(job.id)
    assert (done.attempt, done.failures) == (1, 0)


async def test_retry_later_that_is_spent_is_a_failure_and_not_tried_before_its_time(
    ol: Outlast,
) -> None:
    """R044, R047: whichever is later, its wish or the policy's; at the end of the budget, dead."""

    @ol.task(retry=Retry(max_attempts=2, base=60.0, jitter=0.0))
    async def busy(seconds: float) -> None:
        raise RetryLater(seconds, "busy", spent=True)

    @ol.task(max_attempts=1)
    async def last() -> None:
        raise RetryLater(60.0, "busy", spent=True)

    async with work(ol):
        soon, late, over = await ol.aenqueue(busy.job(1.0), busy.job(3600.0), last.job())
        for job in (soon, late):
            await aeventually(lambda job=job: ol.job(job.id).state == "scheduled")
        assert (await ended(ol, over)).state == "dead"
    waits = {job.id: await ol.ajob(job.id) for job in (soon, late)}
    assert {job.failures for job in waits.values()} == {1}
    apart = (waits[late.id].run_at - waits[soon.id].run_at).total_seconds()
    assert 3500 < apart < 3600


async def test_retry_later_by_a_century_is_still_a_moment_that_can_be_read(ol: Outlast) -> None:
    @ol.task
    async def someday() -> None:
        raise RetryLater(1e300)

    async with work(ol):
        job = await someday.aenqueue()
        await aeventually(lambda: ol.job(job.id).state == "scheduled")
    assert (await ol.ajob(job.id)).run_at.year > 2030


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "an object": object,
    "no number": lambda: float("nan"),
    "NUL": lambda: "NUL \0",
    "bytes": lambda: b"bytes",
    "two megabytes": lambda: ["x" * 2_000_000],
    "an iterator": lambda: iter([1, 2]),
}


async def test_a_result_that_cannot_be_stored_makes_its_job_dead_with_the_reason(
    ol: Outlast,
) -> None:
    """The work is done: doing it again would not help."""
    runs = []

    @ol.task(retry=QUICK)
    async def odd(kind: str) -> Any:
        runs.append(kind)
        return UNSTORABLE[kind]()

    async with work(ol):
        for job in await ol.aenqueue(*(odd.job(kind) for kind in UNSTORABLE)):
            dead = await ended(ol, job)
            assert dead.state == "dead" and dead.error is not None
            assert "the result cannot be stored" in dead.error["message"]
    assert sorted(runs) == sorted(UNSTORABLE)


async def test_a_dead_job_can_be_given_a_new_life(ol: Outlast) -> None:
    """R052: redriven twice at once it runs once more, with all budgets full, on record."""
    broken = True
    runs = []

    @ol.task(max_attempts=2, retry=QUICK)
    async def mended(ctx: Context) -> str:
        runs.append(ctx.attempt)
        if broken:
            raise ValueError("broken")
        return "ok"

    async with work(ol):
        job = await mended.aenqueue()
        assert (await ended(ol, job)).state == "dead"
        broken = False
        redriven = [ol.aretry(job.id) for _ in range(5)]
        for answer in await asyncio.gather(*redriven, return_exceptions=True):
            assert isinstance(answer, Job | TooLate)  # the last may find that it has succeeded
        assert await ol.aresult(job.id, timeout=10) == "ok"
        await asyncio.gather(*(ol.aretry_all() for _ in range(3)))
    assert runs == [1, 2, 1]
    _, events = await ol.ahistory(job.id)
    assert [event.kind for event in events] == ["redrive"] and "by" in events[0].data
