"""From a signal to the handler that goes on: how often the database is asked."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from outlast import (
    Context,
    InvalidSignal,
    JobNotFound,
    KeyConflict,
    Outlast,
    State,
    TooLate,
)
from outlast.model.errors import StoreError
from outlast.model.wait import Wait, WaitKind
from outlast.ops.waits import kept_waits, settle_wait
from outlast.store.postgres.store import PostgresStore
from outlast.worker.waits import HandlerOperations
from tests.store.jobs import take
from tests.support import aeventually

from .working import Spy, ended, work

pytestmark = pytest.mark.kinds("postgres")

SENDER = {"send_signal"}
CHECKING_SENDER = {
    "hold_recipient", "insert_signal", "record_action", "wake_signalled", "notify_workers",
}  # fmt: skip
TAKER = {"hold_claim", "record_taken", "take_signal", "end_by_signal"}  # fused into one


async def parked(ol: Outlast, id: str) -> None:
    async def waits() -> bool:
        return (await ol.ajob(id)).state is State.WAITING

    await aeventually(waits)


async def test_a_signal_is_sent_in_one_round_trip_and_taken_in_one(ol: Outlast) -> None:
    """R246: the notification goes with the signal; the next wait takes it without a look."""

    @ol.task
    async def waits(ctx: Context) -> object:
        return await ctx.wait("go")

    job = await waits.aenqueue()
    async with work(ol):
        await parked(ol, job.id)
    spy = Spy(ol)
    assert (await ol.asignal(job.id, "go", 7)).woke
    assert dict(spy.counts) == dict.fromkeys(SENDER, 1) and spy.round_trips == 1
    (claim,) = take(ol.store.run)
    kept = await ol.store.arun(kept_waits, claim.id)
    spy.forget()
    wait = Wait("go", WaitKind.SIGNAL, ("go",))
    settled = await ol.store.arun(settle_wait, claim, wait, kept["go"])
    assert settled is not None and settled.result == "7"
    assert dict(spy.counts) == dict.fromkeys(TAKER, 1) and spy.round_trips == 1


async def test_a_signal_that_some_task_refuses_is_checked_before_it_is_kept(ol: Outlast) -> None:
    """R246: the task of the job decides; other tasks do not matter."""

    @ol.task(signals={"go": int})
    async def waits(ctx: Context) -> object:
        return await ctx.wait("go")

    @ol.task(signals={"stop": int})
    async def other(ctx: Context) -> None: ...

    job, wrong = await waits.aenqueue(), await other.aenqueue()
    async with work(ol):
        await parked(ol, job.id)
    spy = Spy(ol)
    with pytest.raises(InvalidSignal):
        await ol.asignal(job.id, "go", "seven")
    with pytest.raises(InvalidSignal):
        await ol.asignal(wrong.id, "go", 7)
    spy.forget()
    assert (await ol.asignal(job.id, "go", 7)).woke
    assert dict(spy.counts) == dict.fromkeys(CHECKING_SENDER, 1) and spy.round_trips == 3


async def test_a_signal_that_is_refused_or_repeated_says_so(ol: Outlast) -> None:
    """R246, R170: also if it was sent in one round trip."""

    @ol.task
    async def quick() -> None: ...

    @ol.task
    async def waits(ctx: Context) -> object:
        return await ctx.wait("go")

    done, job = await quick.aenqueue(), await waits.aenqueue()
    async with work(ol):
        await ended(ol, done)
        await parked(ol, job.id)
    sent = []
    for id, value, key in ((done.id, 1, "a"), (str(uuid4()), 1, "a"), (job.id, 1, "a"),
                           (job.id, 1, "a"), (job.id, 2, "a")):  # fmt: skip
        ol._parts.notify_limiter._last.clear()  # as after a pause
        try:
            sent.append((await ol.asignal(id, "go", value, key=key)).new)
        except (TooLate, JobNotFound, KeyConflict) as error:
            sent.append(type(error))
    assert sent == [TooLate, JobNotFound, True, False, KeyConflict]


async def test_a_notification_that_is_refused_costs_no_signal(ol: Outlast) -> None:
    """R012, R246: the server's queue of notifications may be full; the signal is kept once."""

    @ol.task
    async def waits(ctx: Context) -> object:
        return await ctx.wait("go")

    job = await waits.aenqueue()
    async with work(ol):
        await parked(ol, job.id)
        spy = Spy(ol)
        spy.refuse("send_signal", StoreError("too many notifications", refused=True))
        sent = await ol.asignal(job.id, "go", 7)
        assert sent.woke and not spy.refusing("send_signal")
        assert (await ended(ol, job)).result == 7


async def test_handlers_that_go_on_at_once_take_one_more_connection_at_most(ol: Outlast) -> None:
    """R180: as the count of connections of a worker says."""
    hot = ol.store.hot_path_clone()
    assert isinstance(hot, PostgresStore)
    operations = HandlerOperations(ol.store, hot)
    ids = [str(uuid4()) for _ in range(5)]
    try:
        async with asyncio.TaskGroup() as tasks:
            for id in ids:
                tasks.create_task(operations.arun(kept_waits, id))
        assert len(hot._pools.loop_pool().idle) == 1
    finally:
        await hot.aclose()
