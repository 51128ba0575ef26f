"""Durable steps: what a step gave is kept across the attempts of its job."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from outlast import ClaimLost, Context, InvalidOption, Outlast, Retry, StoreUnavailable
from tests.support import Database, aeventually, eventually

from .scripts import both_colours, handler
from .working import Spy, ended, sql, started, work

TWICE = Retry(max_attempts=2, base=0.0, jitter=0.0)
Script = Generator[Any, Any, Any]


class Counted:
    """A function that counts its calls."""

    def __init__(self, *gives: Any) -> None:
        self.gives = list(gives)
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        given = self.gives[min(len(self.calls), len(self.gives)) - 1]
        if isinstance(given, Exception):
            raise given
        return given


@both_colours
async def test_a_kept_step_is_not_run_again(ol: Outlast, colour: str) -> None:
    """R105: what the first attempt did, the second one knows; and both see the same values."""
    fetch, store, seen = Counted({"rows": (1, 2)}), Counted(None), []

    def script(ctx: Context) -> Script:
        rows = yield ctx.step("fetch", fetch, "url")
        stored = yield ctx.step("store", store, rows)
        seen.append((rows, stored))
        if ctx.attempt == 1:
            raise OSError("after two of three")
        return (yield ctx.step("last", lambda: "done"))

    task = handler(ol, colour, script, retry=TWICE)
    async with work(ol):
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == "done"
    assert fetch.calls == [("url",)]
    assert store.calls == [({"rows": [1, 2]},)], "the first time too, it had been JSON"
    assert seen == [({"rows": [1, 2]}, None)] * 2


def moments(n: int) -> tuple[datetime, ...]:
    return tuple(datetime(2026, 1, day, tzinfo=UTC) for day in range(1, n + 1))


async def amoments(n: int) -> tuple[datetime, ...]:
    return moments(n)


@both_colours
async def test_a_step_comes_back_as_its_function_is_annotated(ol: Outlast, colour: str) -> None:
    """R105: a replayed step gives an equal value."""
    seen = []

    def script(ctx: Context) -> Script:
        function = moments if colour == "sync" else amoments
        seen.append((yield ctx.step("moments", function, 2)))
        seen.append((yield ctx.step("partly", partial(function, 1))))
        if ctx.attempt == 1:
            raise OSError("once")

    task = handler(ol, colour, script, retry=TWICE)
    async with work(ol):
        await ol.aresult((await task.aenqueue()).id, timeout=10)
    assert seen == [moments(2), moments(1)] * 2


@both_colours
async def test_a_step_that_fails_keeps_nothing(ol: Outlast, colour: str) -> None:
    """The job's retry policy applies; or the handler tries once more by itself."""
    flaky, own = Counted(OSError("first"), "second"), Counted(OSError("first"), "second")

    def script(ctx: Context) -> Script:
        try:
            yield ctx.step("own", own)
        except OSError:
            yield ctx.step("own", own)
        return (yield ctx.step("flaky", flaky))

    task = handler(ol, colour, script, retry=TWICE)
    async with work(ol):
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == "second"
    assert (len(flaky.calls), len(own.calls)) == (2, 2)
    assert (await ol.ajob(job.id)).failures == 1


@both_colours
async def test_a_name_is_one_steps(ol: Outlast, colour: str) -> None:
    """Two calls under one name would be one step, and the second would get the first's result."""
    told: list[str] = []
    fetch = Counted(1)

    def script(ctx: Context) -> Script:
        yield ctx.step("fetch", fetch, 1)
        for again in (
            lambda: ctx.step("fetch", fetch, 2),
            lambda: ctx.steps({"other": fetch, "fetch": fetch}),
            lambda: ctx.step("", fetch),
        ):
            try:
                yield again()
            except InvalidOption as error:
                told.append(str(error))

    task = handler(ol, colour, script)
    async with work(ol):
        await ol.aresult((await task.aenqueue()).id, timeout=10)
    assert len(fetch.calls) == 1
    assert ["'fetch' is taken" in one for one in told] == [True, True, False]


@both_colours
async def test_what_is_no_json_is_refused_by_the_name_of_its_step(ol: Outlast, colour: str) -> None:
    """The work is done and cannot be kept: doing it again would not help."""
    odd = Counted({"a": object()})

    def script(ctx: Context) -> Script:
        yield ctx.step("odd", odd)

    task = handler(ol, colour, script, retry=TWICE)
    async with work(ol):
        dead = await ended(ol, await task.aenqueue())
    assert dead.state == "dead" and len(odd.calls) == 1
    assert dead.error is not None
    assert dead.error["type"].endswith("InvalidResult") and "step 'odd' a" in dead.error["message"]


@both_colours
async def test_a_step_of_a_lost_claim_is_not_kept(
    ol: Outlast, database: Database, colour: str
) -> None:
    """R030, R033: another owner has the job by the time that the step is done."""
    lost: list[str] = []

    def steal(id: str) -> None:
        sql(database, "UPDATE {job} SET fence = 7, worker = 'thief' WHERE id = ?", id)

    def script(ctx: Context) -> Script:
        try:
            yield ctx.step("late", steal, ctx.job.id)
        except ClaimLost as error:
            lost.append(error.facts["job"])

    task = handler(ol, colour, script)
    async with work(ol):
        job = await task.aenqueue()
        await aeventually(lambda: lost)
    assert lost == [job.id]
    assert sql(database, "SELECT 1 FROM {step}") == []


class Gauge:
    """How many are at work, and how many ever were at once."""

    def __init__(self) -> None:
        self.now = self.most = self.began = 0
        self.failed = False
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            self.now += 1
            self.began += 1
            self.most = max(self.most, self.now)

    def leave(self) -> None:
        with self._lock:
            self.now -= 1

    def work(self, n: int) -> int:
        self.enter()
        try:
            eventually(lambda: self.may_end(n))
            return self.done(n)
        finally:
            self.leave()

    async def awork(self, n: int) -> int:
        self.enter()
        try:
            await aeventually(lambda: self.may_end(n))
            return self.done(n)
        finally:
            self.leave()

    def may_end(self, n: int) -> bool:
        """Number seven fails once, with three beside it; those after it end only when it has."""
        return n < 7 or self.failed or (n == 7 and self.now == 4)

    def done(self, n: int) -> int:
        if n == 7 and not self.failed:
            self.failed = True
            raise OSError("number seven")
        return n * n


@pytest.mark.parametrize(
    ("colour", "functions"), [("sync", "sync"), ("async", "sync"), ("async", "async")]
)
async def test_steps_at_once_are_bounded_and_all_settled(
    ol: Outlast, colour: str, functions: str
) -> None:
    """R106: cap 4, 20 units, one raises: never more than 4 at once, and none runs after the end.
    R105: the next attempt runs only what was not kept."""
    gauge, after = Gauge(), []
    call = gauge.work if functions == "sync" else gauge.awork

    def script(ctx: Context) -> Script:
        try:
            return (yield ctx.steps({f"unit {n}": partial(call, n) for n in range(20)}, limit=4))
        finally:
            after.append((gauge.most, gauge.now, gauge.began))

    task = handler(ol, colour, script, retry=TWICE)
    async with work(ol):
        job = await task.aenqueue()
        result = await ol.aresult(job.id, timeout=20)
    assert list(result.items()) == [(f"unit {n}", n * n) for n in range(20)]
    (most, now, began), (_, then, all_of_them) = after
    assert (most, now, then) == (4, 0, 0)
    assert 8 <= began < 20, "none begins after one has failed"
    assert all_of_them == 20 + 1, "all were kept but the one that failed"


async def test_a_cancelled_handler_leaves_no_step_running(ol: Outlast) -> None:
    """R106, R115: tasks are cancelled, a thread is waited for."""
    gauge = Gauge()
    after: list[int] = []

    async def endless() -> None:
        gauge.enter()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            gauge.leave()

    def brief() -> None:
        gauge.enter()
        time.sleep(0.5)
        gauge.leave()

    @ol.task
    async def fans_out(ctx: Context) -> None:
        try:
            await ctx.steps({"a": endless, "b": endless, "c": brief, "d": endless}, limit=3)
        finally:
            after.append(gauge.now)

    async with work(ol):
        job = await fans_out.aenqueue()
        await aeventually(lambda: gauge.now == 3)
        await ol.acancel(job.id)
        assert (await ended(ol, job)).state == "cancelled"
    assert (after, gauge.began) == ([0], 3)


@both_colours
async def test_a_step_that_is_done_waits_for_the_database_to_come_back(
    ol: Outlast, colour: str
) -> None:
    """R169: its work is not thrown away for an outage that the claim outlasts."""
    charge = Counted("receipt")
    spy = Spy(ol)

    def script(ctx: Context) -> Script:
        return (yield ctx.step("charge", charge))

    task = handler(ol, colour, script, max_attempts=1)
    spy.refuse("keep_step", StoreUnavailable(reason="gone"), times=3)
    async with work(ol):
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=20) == "receipt"
    assert len(charge.calls) == 1 and not spy.refusing("keep_step")


async def test_a_step_waits_no_longer_than_its_claim(ol: Outlast) -> None:
    """R030: when the lease may have run out, somebody else may be doing it."""
    told: list[str] = []
    spy = Spy(ol)

    @ol.task(max_attempts=1)
    def charges(ctx: Context) -> None:
        try:
            ctx.step("charge", str)
        except ClaimLost as error:
            told.append(error.facts["job"])

    for name in ("keep_step", "renew"):
        spy.refuse(name, StoreUnavailable(reason="gone"), times=1000)
    async with work(ol, lease=1.0, renew_every=0.3):
        job = await charges.aenqueue()
        await aeventually(lambda: told, 20.0)
        assert told == [job.id]


async def test_a_blocking_function_does_not_hold_up_an_async_handlers_worker(ol: Outlast) -> None:
    beats: list[float] = []

    @ol.task
    async def waits(ctx: Context) -> str:
        async def beat() -> None:
            while True:
                beats.append(time.monotonic())
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        name = await ctx.step("blocks", lambda: time.sleep(0.3) or threading.current_thread().name)
        beating.cancel()
        return str(name)

    async with work(ol):
        job = await waits.aenqueue()
        assert await ol.aresult(job.id, timeout=10) != threading.main_thread().name
    assert len(beats) > 5


async def test_a_sync_handler_is_told_that_it_cannot_wait_for_an_async_function(
    ol: Outlast,
) -> None:
    @ol.task(max_attempts=1)
    def waits(ctx: Context) -> None:
        ctx.step("moments", amoments, 2)

    async with work(ol):
        dead = await ended(ol, await waits.aenqueue())
    assert dead.error is not None and "only an async handler" in dead.error["message"]


async def test_errors_of_steps_at_once_are_told_together(ol: Outlast) -> None:
    both = threading.Barrier(2)

    def fail(n: int) -> None:
        both.wait(30)  # neither is called off before it began
        raise ValueError(f"number {n}")

    @ol.task(max_attempts=1)
    def fails(ctx: Context) -> None:
        ctx.steps({"a": partial(fail, 1), "b": partial(fail, 2)}, limit=2)

    async with work(ol):
        dead = await ended(ol, await fails.aenqueue())
    assert dead.error is not None and dead.error["message"] == "number 1"
    assert "step 'b' failed too: ValueError" in dead.error["traceback"]


async def test_a_token_is_the_same_on_every_attempt(ol: Outlast) -> None:
    """R129: an outside call carries the same token each time, another one for each name."""
    tokens: list[tuple[str, str]] = []

    @ol.task(retry=TWICE)
    def charges(ctx: Context) -> None:
        tokens.append((ctx.token(), ctx.token("charge")))
        if ctx.attempt == 1:
            raise OSError("no answer")

    async with work(ol):
        jobs = await ol.aenqueue(charges.job(), charges.job())
        for job in jobs:
            await ol.aresult(job.id, timeout=10)
    assert len(tokens) == 4 and len(set(tokens)) == 2
    assert len({token for pair in tokens for token in pair}) == 4


@both_colours
async def test_a_redriven_job_keeps_its_steps(ol: Outlast, colour: str) -> None:
    """What they did was done; its budgets are new, its past is not."""
    charge = Counted("receipt")

    def script(ctx: Context) -> Script:
        receipt = yield ctx.step("charge", charge)
        if ctx.fence == 1:
            raise OSError("dead")
        return receipt

    task = handler(ol, colour, script, max_attempts=1)
    async with work(ol):
        job = await task.aenqueue()
        assert (await ended(ol, job)).state == "dead"
        await ol.aretry(job.id)
        assert await ol.aresult(job.id, timeout=10) == "receipt"
    assert len(charge.calls) == 1


async def test_a_step_begun_by_an_abandoned_handler_is_refused(
    ol: Outlast, database: Database
) -> None:
    """R030: its outcome did not wait for it, and neither does its claim."""
    told: list[str] = []
    late = Counted(1)
    go = threading.Event()

    @ol.task(max_attempts=1, timeout=0.1)
    def stuck(ctx: Context) -> None:
        go.wait(20)
        try:
            ctx.step("late", late)
        except ClaimLost as error:
            told.append(error.facts["job"])

    async with work(ol, cancel_grace=0.1):
        job = await stuck.aenqueue()
        await started(ol, job)
        assert (await ended(ol, job)).state == "dead"
        go.set()
        await aeventually(lambda: told)
    assert sql(database, "SELECT 1 FROM {step}") == []
    assert late.calls == [], "it does not even begin"
