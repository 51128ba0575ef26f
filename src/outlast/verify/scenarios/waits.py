"""Durable waits and signals: an end of an attempt, a signal and a time-out, in every order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from ...model.claim import Claim
from ...model.errors import ClaimLost, LinkRefused, StoreError, TooLate
from ...model.job import Job
from ...model.lifecycle import Outcome
from ...model.outcome import AttemptEnd
from ...model.wait import Wait, Waiting, WaitKind
from ...ops.operation import BEGIN, CommitPipeline, Op, Pipeline
from ...ops.signal_links import answer_link
from ...ops.signals import NewSignal, SentSignal, send_at_once, send_signal
from ...ops.wake_ups import deliver_signals, wake_timed_out
from ..scenario_context import ScenarioContext
from ..wait_tasks import MAYBE, SIGNAL
from .scenario import scenario
from .whole_workers import work_until

GO = Wait(SIGNAL, WaitKind.SIGNAL, (SIGNAL,))
UNHINDERED_S = 0.5  # seconds in which an attempt ends, unless it waits for a lock


def _enqueue(ctx: ScenarioContext, **args: object) -> Job:
    job = ctx.work.waiting.waits.using(queue=ctx.queue).enqueue(**args)
    ctx.record_promise(job.id)
    return job


def _claim(ctx: ScenarioContext) -> Claim:
    (claim,) = ctx.record_begun(ctx.claim(1))
    return claim


def _park(ctx: ScenarioContext, claim: Claim, wait: Wait = GO) -> None:
    ctx.finish([(claim, AttemptEnd(Outcome.WAITED, wait=wait))])


def _send(ctx: ScenarioContext, id: str, number: int = 1, name: str = SIGNAL) -> None:
    """Send numbered signals; ignored if the job has already continued."""
    with suppress(TooLate):
        ctx.work.waiting.send(id, number, name)


def _send_all(ctx: ScenarioContext) -> Iterator[str]:
    """Send all signals again, as a sender does after its process was killed."""
    for job in ctx.ol.jobs(queue=ctx.queue, task="waits"):
        _send(ctx, job.id, int(job.args.get("signals", 1)))
    return iter(())


@scenario("wait", owner=True)
def wait(ctx: ScenarioContext) -> Iterator[None]:
    """An attempt ends because its handler waits; a signal resumes the job."""
    job = _enqueue(ctx)
    claim = _claim(ctx)
    yield
    _park(ctx, claim)
    _send(ctx, job.id)


wait.on_retry(_send_all)


@scenario("signal-early", owner=True)
def early(ctx: ScenarioContext) -> Iterator[None]:
    """Signals that arrive before the wait are kept for it."""
    job = _enqueue(ctx, signals=2)
    claim = _claim(ctx)
    yield
    _send(ctx, job.id, 2)
    _park(ctx, claim)


early.on_retry(_send_all)


@scenario("signal-beside-end", max_points=8)
def beside_end(ctx: ScenarioContext) -> Iterator[None]:
    """An attempt ends while a signal is being sent: the attempt sees the signal, or the sender sees
    the wait."""
    job = _enqueue(ctx)
    claim = _claim(ctx)
    yield
    _send_beside_end(ctx, job, claim, lambda signal: send_signal(signal, "verify", _take_all))


beside_end.on_retry(_send_all)


@scenario("signal-at-once-beside-end", max_points=8)
def at_once_beside_end(ctx: ScenarioContext) -> Iterator[None]:
    """An attempt ends while a signal is sent in one statement, on stores that can."""
    job = _enqueue(ctx)
    claim = _claim(ctx)
    channel = ctx.ol.store.channel
    yield
    if ctx.ol.store.can_notify:
        _send_beside_end(
            ctx, job, claim, lambda signal: send_at_once(signal, "verify", _take_all, channel)
        )
    else:
        _send(ctx, job.id)
        _park_if_held(ctx, claim)


at_once_beside_end.on_retry(_send_all)


def _take_all(task: str, name: str, text: str) -> None:
    """Take every signal."""


def _send_beside_end(
    ctx: ScenarioContext, job: Job, claim: Claim, send: Callable[[NewSignal], Op[SentSignal]]
) -> None:
    """End an attempt between the last statement of a sender and its commit."""
    end = threading.Thread(target=_park_if_held, args=(ctx, claim), daemon=True)

    def sending() -> Op[SentSignal]:
        yield BEGIN
        op = send(NewSignal(job.id, SIGNAL, "0", f"{SIGNAL} 0"))
        answer: object = None
        while True:
            try:
                step = op.send(answer)
            except StopIteration as stop:
                if end.ident is None:
                    end.start()
                end.join(UNHINDERED_S)
                return stop.value  # type: ignore[no-any-return]
            # A pipeline that commits would leave no gap before the commit.
            answer = yield Pipeline(step) if isinstance(step, CommitPipeline) else step

    ctx.run(sending)
    end.join()


def _park_if_held(ctx: ScenarioContext, claim: Claim) -> None:
    with suppress(ClaimLost, StoreError):
        _park(ctx, claim)


@scenario("signal-in-transaction", uses_caller_transaction=True)
def in_callers_transaction(ctx: ScenarioContext) -> Iterator[None]:
    """A signal sent in a caller's transaction wakes the job after the commit."""
    job = _enqueue(ctx)
    _park(ctx, _claim(ctx))
    with ctx.workspace.connect() as connection:
        yield
        ctx.work.waiting.send(job.id, conn=connection)
        connection.commit()
    ctx.run(deliver_signals)


in_callers_transaction.on_retry(_send_all)


@scenario("signal-link")
def link(ctx: ScenarioContext) -> Iterator[None]:
    """A one-time link sends its signal once; a revoked link sends none."""
    job = _enqueue(ctx)
    _park(ctx, _claim(ctx))
    yield
    used, revoked = (ctx.ol.signal_link(job.id, SIGNAL, 0) for _ in range(2))
    ctx.ol.revoke_signal_link(revoked)
    for one in (used, used, revoked):
        with suppress(LinkRefused):
            sent = ctx.run(answer_link, one.id, "0", one.id, lambda *_: None)
            if one is revoked:
                ctx.report("I3", "repeated", f"a revoked link has sent {sent}")


link.on_retry(_send_all)


@scenario("take-signal", owner=True)
def take(ctx: ScenarioContext) -> Iterator[None]:
    """A signal is taken once, by the valid claim, and later attempts get the same value."""
    job = _enqueue(ctx)
    _park(ctx, _claim(ctx))
    _send(ctx, job.id)
    claim = _claim(ctx)
    context = ctx.context(claim)
    yield
    try:
        if (value := context.wait(SIGNAL)) != 0:
            ctx.report("I3", "repeated", f"the first signal was {value}")
    except ClaimLost:
        pass
    except Waiting:
        ctx.report("I2", "unfired", "a handler waits for a signal that has arrived")
    ctx.finish([(claim, AttemptEnd(Outcome.FAILED, error={"type": "Verify", "message": ""}))])


take.on_retry(_send_all)


@scenario("wait-times-out")
def times_out(ctx: ScenarioContext) -> Iterator[None]:
    """A time-out wakes the job, and a signal that arrives at the same time is taken or kept."""
    job = _enqueue(ctx, signals=0, timeout=0.01)
    late = Wait(MAYBE, WaitKind.SIGNAL, (MAYBE,), 0.0)
    _park(ctx, _claim(ctx), late)
    yield
    ctx.run(wake_timed_out)
    _send(ctx, job.id, 1, MAYBE)


@scenario("sleep", owner=True)
def sleep(ctx: ScenarioContext) -> Iterator[None]:
    """A sleeping job starts again at its due time, wherever its worker died."""
    job = _enqueue(ctx, nap=0.02)
    claim = _claim(ctx)
    yield
    _park(ctx, claim, Wait("sleep", WaitKind.SLEEP, delay=0.02))
    _send(ctx, job.id)


sleep.on_retry(_send_all)


@scenario("wait-for-job", owner=True)
def wait_for_job(ctx: ScenarioContext) -> Iterator[None]:
    """The end of a job wakes the job that waits for it, also if it ends before the wait."""
    child = ctx.enqueue_and_claim()[0]
    parent = ctx.work.waiting.awaits.using(queue=ctx.queue).enqueue(child=child.id)
    ctx.record_promise(parent.id)
    claim = _claim(ctx)
    yield
    _park(ctx, claim, Wait("child", WaitKind.JOB, (child.id,), awaits=child.id))
    ctx.finish([(child, ctx.attempt_end(Outcome.SUCCEEDED, child))])


@scenario("worker-waits", max_points=16)
def work_and_wait(ctx: ScenarioContext) -> Iterator[None]:
    """Sleeps, signals and other jobs in a worker, async and in threads."""
    waiting = ctx.work.waiting
    jobs = [_enqueue(ctx, nap=0.01, signals=2)]
    jobs.append(waiting.waits_in_thread.using(queue=ctx.queue).enqueue(signals=2))
    parent = waiting.awaits.using(queue=ctx.queue).enqueue(child=jobs[0].id)
    for job in (jobs[1], parent):
        ctx.record_promise(job.id)
    for job in jobs:
        waiting.send(job.id, 2)
    yield
    asyncio.run(work_until(ctx, lambda counts: counts["succeeded"] >= 3))
