"""From a signal to the handler that goes on: how often the database is asked."""

from __future__ import annotations

import pytest

from outlast import Context, Outlast, State
from outlast.model.errors import StoreError
from outlast.model.wait import Wait, WaitKind
from outlast.ops.waits import resume_waits
from tests.store.jobs import take
from tests.support import aeventually

from .working import Spy, ended, work

pytestmark = pytest.mark.kinds("postgres")

SENDER = {"hold_recipient", "insert_signal", "record_action", "wake_signalled_and_notify"}
TAKER = {"kept_waits", "first_signal", "hold_claim", "record_taken", "take_signal", "end_by_signal"}


async def parked(ol: Outlast, id: str) -> None:
    async def waits() -> bool:
        return (await ol.ajob(id)).state is State.WAITING

    await aeventually(waits)


async def test_a_signal_is_sent_in_two_round_trips_and_taken_in_two(ol: Outlast) -> None:
    """R246: the notification goes with the commit; the look for earlier waits finds the signal."""

    @ol.task
    async def waits(ctx: Context) -> object:
        return await ctx.wait("go")

    job = await waits.aenqueue()
    async with work(ol):
        await parked(ol, job.id)
    spy = Spy(ol)
    await ol.asignal(job.id, "go", 7)
    assert set(spy.counts) == SENDER and spy.counts.total() == len(SENDER)
    assert spy.round_trips == 2
    (claim,) = take(ol.store.run)
    spy.forget()
    kept = await ol.store.arun(resume_waits, claim, Wait("go", WaitKind.SIGNAL, ("go",)))
    assert kept["go"].result == "7"
    assert set(spy.counts) == TAKER and spy.counts.total() == len(TAKER)
    assert spy.round_trips == 2


async def test_a_notification_that_is_refused_costs_no_signal(ol: Outlast) -> None:
    """R012, R246: the server's queue of notifications may be full; the signal is kept once."""

    @ol.task
    async def waits(ctx: Context) -> object:
        return await ctx.wait("go")

    job = await waits.aenqueue()
    async with work(ol):
        await parked(ol, job.id)
        spy = Spy(ol)
        spy.refuse("wake_signalled_and_notify", StoreError("too many notifications", refused=True))
        sent = await ol.asignal(job.id, "go", 7)
        assert sent.woke and not spy.refusing("wake_signalled_and_notify")
        assert (await ended(ol, job)).result == 7
