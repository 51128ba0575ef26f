"""Leases that prove nothing: stepped clocks, locks of somebody else, processes that exist."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from ...model.errors import StoreBusy
from ...model.lease_trust import ALWAYS, BELIEVE, LeaseTrust
from ...model.lifecycle import Outcome
from ...model.offer import remote_id
from ...ops import duties
from ...ops.reclaim import by_row, reclaim, reclaim_overdue, signs_of_loss
from ...ops.statement import BEGIN, Op, Statement
from ...store import alive
from ..stage import Stage
from .healing import A_MOMENT
from .path import path
from .working import began, worker

AN_HOUR = 3600.0
LONG_LEASE = 6.0  # seconds: longer than a renewal takes on a busy machine
SHORT_LEASE = 1.2  # seconds
LOCKED_LEASE = 2.4  # seconds, of an owner that somebody's lock keeps from renewing
LOCK_WAIT = 0.1  # seconds after which a sweep gives up
LOCKED = 0.8  # seconds by which a lock outlasts it
CRASHES = 3
TIMEOUT = 1.5  # seconds: longer than two statements take on a busy machine
# Of owners with a card, only those with a lease of half of LONG_LEASE or less are believed gone.
SHORTLY = BELIEVE._replace(calm=LONG_LEASE / 4, unknown=ALWAYS)


@path("late-sweep", apart=True, most=8)
def late_sweep(stage: Stage) -> Iterator[None]:
    """A sweep that comes later than it expected, or too soon after a doubt, takes nothing."""
    stage.run(duties.arrive, stage.ol.worker(lease=LONG_LEASE).card() | {"id": stage.owner})
    _see_unproven_calm(stage)
    stage.enqueued(2)
    claims = stage.began(stage.claim(lease=0.001))
    time.sleep(A_MOMENT)
    yield
    locked = stage.ol.store.confirm_locked
    stage.run(reclaim, 500, 0, SHORTLY._replace(until=1.0, calm=LONG_LEASE), locked)
    stage.run(reclaim, 500, 0, SHORTLY, locked)
    ends = [(claim, stage.ended(Outcome.SUCCEEDED, claim)) for claim in claims]
    for transition in stage.finish(ends).lost:
        stage.ledger.write("robbed", *transition.claim.hold)


def _see_unproven_calm(stage: Stage) -> None:
    """A period of calm ends with its last probe, and a lock that stops renewals stops a probe."""
    trust = LeaseTrust(LONG_LEASE, LONG_LEASE / 3)
    trust.look(AN_HOUR, 0.0, 0.01)
    trust.probed(0.0, 0.01)
    if trust.belief(2 * LONG_LEASE).calm > 0:
        stage.saw("I2", "owner-dead", "a period of calm was believed without a probe")
    if stage.place.is_sqlite:
        return
    other = stage.ol.store.twin(lock_timeout=LOCK_WAIT)
    try:
        with share_lock(stage):
            other.run(reclaim, 1, 0, BELIEVE._replace(until=1.0))
    except StoreBusy:
        pass
    else:
        stage.saw("I2", "owner-dead", "a sweep went through while nobody could renew")
    finally:
        other.close()


@contextmanager
def share_lock(stage: Stage) -> Iterator[None]:
    """The lock that CREATE INDEX takes: nobody can renew, and rows can be locked."""
    from psycopg import sql

    with stage.place.connect_past_proxy() as connection:
        job = sql.Identifier(stage.place.schema, "job")
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(job))
        yield
        connection.rollback()


@path("early-deadline", apart=True, most=8)
def early_deadline(stage: Stage) -> Iterator[None]:
    """After a step of the clock a job has run since the step for certain, and no longer."""
    stage.enqueued(1, timeout=TIMEOUT)
    since = time.monotonic()
    claims = stage.began(stage.claim())
    # At once: when its lease has ended, sweeps of other paths may take the job.
    if not stage.run(signs_of_loss, 0.0, A_MOMENT).lease:
        stage.saw("I2", "stalled-net", "nobody looks at a lease from before a step back")
    time.sleep(TIMEOUT + A_MOMENT)
    yield
    now = stage.run(signs_of_loss).clock
    stage.run(reclaim_overdue, 0.0, by_row, 500, 0, BELIEVE._replace(since=now))
    stage.finish_in_time([(c, stage.ended(Outcome.SUCCEEDED, c)) for c in claims], since)


@path("stalled", apart=True, most=8)
def stalled(stage: Stage) -> Iterator[None]:
    """A process that exists stops renewing: no crash is charged, and there is an end to it."""
    stage.run(duties.arrive, stage.ol.worker(lease=SHORT_LEASE).card() | {"id": stage.owner})
    (job,) = stage.enqueued(1, "succeeded", "dead", max_crashes=CRASHES)
    with _lock_of(stage):
        yield
        for stalls in range(1, CRASHES + 2):
            if not stage.began(stage.claim(lease=0.001)):
                break
            time.sleep(A_MOMENT)
            stage.run(reclaim, 500, 0, SHORTLY, stage.ol.store.confirm_locked)
            if stalls == 1 and stage.ol.job(job.id).crashes:
                told = "a crash was charged while the owner's process existed"
                stage.saw("I4", "miscounted", told)
        stands = stage.ol.job(job.id)
    if stands.fence > CRASHES:
        stage.saw("I4", "poison", f"a job was taken back from {stands.fence} wedged processes")


stalled.alone = True  # sweeps of other paths would charge a crash


@contextmanager
def _lock_of(stage: Stage) -> Iterator[None]:
    """The liveness lock of the stage's owner is held."""
    if stage.place.is_sqlite:
        proof = alive.Proof(stage.ol.store.path, stage.owner)  # type: ignore[attr-defined]
        proof.hold()
        stage.run(duties.prove_life, stage.owner)
        try:
            yield
        finally:
            proof.forget()
        return
    with stage.place.connect_past_proxy() as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (stage.owner,))
        connection.commit()
        stage.run(duties.prove_life, stage.owner)
        yield


@path("stepped-clock", apart=True, most=3)
def stepped_clock(stage: Stage) -> Iterator[None]:
    """All leases end an hour ago, as after a step of the clock: owners renew before others look."""
    job = stage.work.tarries.using(queue=stage.queue).enqueue()
    stage.promise(job.id)
    _see_steps(stage)
    yield
    asyncio.run(_beside_sweeper(stage))
    if stage.ol.job(job.id).fence > 1:
        stage.ledger.write("robbed", job.id, 1)


def _see_steps(stage: Stage) -> None:
    for step in (AN_HOUR, -AN_HOUR):
        trust = LeaseTrust(LONG_LEASE, LONG_LEASE / 3)
        trust.look(AN_HOUR * 10, 0.0, 0.01)
        trust.probed(0.0, 0.01)
        if not trust.look(AN_HOUR * 10 + step, 1.0, 1.01) or trust.belief(2.0).calm > 0:
            stage.saw("I2", "owner-dead", f"a step of the clock by {step:g} s was not seen")


async def _beside_sweeper(stage: Stage) -> None:
    here = worker(stage, lease=LONG_LEASE, renew_every=LONG_LEASE / 6)
    beside = worker(stage, f"{stage.queue}-beside", lease=LONG_LEASE)
    try:
        async with beside, here:
            until = time.monotonic() + LONG_LEASE
            while not began(stage, 1) and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await stage.ol.store.arun(_expire_leases, stage.queue)
            while not here.counts["succeeded"] and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await stage.ol.store.aclose()


def _expire_leases(queue: str) -> Op[None]:
    yield Statement("expire_leases", {"queue": queue})


@path("foreign-lock", most=2)
def foreign_lock(stage: Stage) -> Iterator[None]:
    """Somebody holds a write lock for longer than a lease: the owner does not let go."""
    job = stage.work.naps.using(queue=stage.queue).enqueue(seconds=LOCKED_LEASE + 2 * LOCKED)
    stage.promise(job.id)
    yield
    asyncio.run(_under_lock(stage))


foreign_lock.alone = True  # sweeps of other paths believe every lease, and would take its job


async def _under_lock(stage: Stage) -> None:
    here = worker(stage, lease=LOCKED_LEASE, renew_every=LOCKED_LEASE / 4)
    try:
        async with here:
            until = time.monotonic() + 5 * LOCKED_LEASE
            while not began(stage, 1) and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await asyncio.to_thread(hold_lock, stage, LOCKED_LEASE + LOCKED)
            while not here.counts["succeeded"] and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            if here.counts["lost"] and stage.patience is None:
                stage.saw("I3", "zombie", "an owner let go of its job because of somebody's lock")
    finally:
        await stage.ol.store.aclose()


def hold_lock(stage: Stage, seconds: float) -> None:
    """Nobody else can write jobs meanwhile."""
    if stage.place.is_sqlite:
        path = stage.place.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        return
    from psycopg import sql

    with stage.place.connect_past_proxy() as connection:
        job = sql.Identifier(stage.place.schema, "job")
        connection.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(job))
        time.sleep(seconds)
        connection.rollback()


@path("shared-looks", apart=True, most=4)
def shared_looks(stage: Stage) -> Iterator[None]:
    """Remote workers never look for lost jobs, and make nobody else look less often; a duty is not
    put off because the clock stepped back."""
    yield
    stage.run(duties.take, stage.queue, 60.0, stage.owner)
    if not any(_takes_late(stage) for _ in range(2)):  # one answer may be lost
        stage.saw("I2", "stalled-net", "a duty sleeps for an hour because the clock stepped back")
    # Others may arrive at the same moment, but not every time.
    if all(stage.run(_counts_remote, stage, number) for number in range(3)):
        stage.saw("I2", "stalled-net", "remote workers count among those who look")


def _takes_late(stage: Stage) -> bool:
    """Whether a duty is taken that is due in an hour, and done every minute."""
    stage.run(_put_off, stage.queue)
    return stage.run(duties.take, stage.queue, 60.0, stage.owner)


def _counts_remote(stage: Stage, number: int) -> Op[bool]:
    """Whether there are more to share the looks once a remote worker has arrived."""
    card = stage.ol.worker().card() | {"id": remote_id(stage.queue, str(number))}
    yield BEGIN
    before = yield from signs_of_loss()
    yield from duties.arrive(card)
    after = yield from signs_of_loss()
    return after.fleet > before.fleet


def _put_off(duty: str) -> Op[None]:
    yield Statement("put_duty_off", {"name": duty})
