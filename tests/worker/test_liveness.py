"""What proves that a worker lives: had before its first claim, kept up, given up in the end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.model.errors import StoreUnavailable
from outlast.ops.operation import Statement, Step
from outlast.ops.reclaim import signs_of_loss
from outlast.store.postgres.connection_parameters import KEEPALIVES
from outlast.store.sqlite import liveness
from outlast.worker import registration
from tests.support import Database, aeventually

from .working import Spy, sql, work


class Onlooker(Spy):
    """Looks who seems dead whenever a worker is about to say a certain word."""

    def __init__(self, ol: Outlast, word: str) -> None:
        self.beside = ol.store.clone()
        super().__init__(ol)
        self.word = word
        self.saw: list[list[str]] = []

    def _see(self, step: Step) -> None:
        super()._see(step)
        if isinstance(step, Statement) and step.name == self.word:
            signs = self.beside.run(signs_of_loss)
            self.saw.append(self.beside.confirm_dead(signs.workers))


async def test_a_worker_that_leaves_is_not_taken_for_dead(ol: Outlast) -> None:
    """R182: its card is down before its lock is free, however slow the database is."""
    ol.migrate()
    onlooker = Onlooker(ol, "deregister_worker")
    async with work(ol) as worker:
        await aeventually(worker.source._registration.proven.is_set)
    assert onlooker.saw
    assert not any(onlooker.saw)
    assert ol.workers() == []
    onlooker.beside.close()


async def test_a_worker_that_is_cancelled_twice_gives_its_lock_up(ol: Outlast) -> None:
    """R184: whatever interrupts its leaving."""
    worker = work(ol, grace=0.0)
    running = asyncio.create_task(worker.arun())
    await aeventually(worker.source._registration.proven.is_set)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    await aeventually(lambda: not worker.leases._thread.is_alive())
    assert not worker.leases.leases.store.holds_liveness_lock


async def test_a_proof_that_was_lost_is_given_again(ol: Outlast, database: Database) -> None:
    """R061: the lock is held, so it is to speak."""
    async with work(ol) as worker:
        await aeventually(worker.source._registration.proven.is_set)
        (proof,) = proofs(database)
        for lost in (None, "of an earlier start"):
            sql(database, "UPDATE {worker} SET proof = ?", lost)
            await aeventually(lambda: proofs(database) == [proof])


async def test_who_holds_no_lock_proves_nothing(ol: Outlast, database: Database) -> None:
    """R078: a proof without a lock would have it buried."""
    async with work(ol) as worker:
        await aeventually(worker.source._registration.proven.is_set)
        worker.leases.leases.store.holds_liveness_lock = False
        sql(database, "UPDATE {worker} SET proof = NULL")
        renew = worker.leases.loops[0]
        passes = renew.passes
        await aeventually(lambda: renew.passes > passes + 2)
        assert proofs(database) == [None]


async def test_nothing_is_claimed_before_there_is_a_proof(
    ol: Outlast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R061: what is claimed before would wait for its lease if its worker died. On a busy machine
    the proof takes a while, and meanwhile the worker may reclaim the jobs of others."""

    @ol.task
    async def quick() -> None:
        pass

    monkeypatch.setattr(registration, "LIVENESS_WAIT_S", 0.0)
    job = await quick.aenqueue()
    spy = Spy(ol)
    worker = work(ol)
    with held_up(database, worker.id):
        worker = await worker.__aenter__()
        await aeventually(lambda: spy.counts["register_worker"])
        worker.on_notify("")  # as after a reclaim
        await asyncio.sleep(0.3)
        assert spy.counts["claim"] == 0
    await ol.aresult(job.id, timeout=10)
    await worker.__aexit__()


async def test_a_worker_that_waits_for_its_proof_stops_at_once(
    ol: Outlast, database: Database
) -> None:
    """R184: it has claimed nothing."""
    ol.migrate()
    spy = Spy(ol)
    worker = work(ol, lease=3600.0)
    with held_up(database, worker.id):
        running = asyncio.create_task(worker.arun())
        await aeventually(lambda: spy.counts["signs_of_loss"])
        worker.stop()
        await asyncio.wait_for(running, 10)


@pytest.mark.kinds("sqlite")
async def test_a_worker_that_can_have_no_proof_works_without(ol: Outlast) -> None:
    """R061: a lease is better than no work."""

    @ol.task
    async def quick() -> None:
        pass

    ol.migrate()
    job = await quick.aenqueue()
    spy = Spy(ol)
    spy.refuse("prove_liveness", StoreUnavailable(reason="away"), times=1000)
    async with work(ol, lease=3600.0) as worker:
        await ol.aresult(job.id, timeout=30)
        assert not worker.source._registration.proven.is_set()


@contextmanager
def held_up(database: Database, worker: str) -> Iterator[None]:
    """Somebody else has its liveness lock for a while."""
    if database.is_sqlite:
        proof = liveness.LivenessFile(database.path, worker)
        assert proof.acquire()
        yield
        proof.forget()
        return
    with database.connect() as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (worker,))
        yield


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the timers of its sockets")
@pytest.mark.kinds("postgres")
async def test_the_server_soon_misses_a_worker_that_vanished(
    ol: Outlast, database: Database
) -> None:
    """R078: a session without a client would hold its lock for hours."""
    async with work(ol) as worker:
        await aeventually(worker.source._registration.proven.is_set)
        listening = "SELECT client_port FROM pg_stat_activity WHERE query = ?"
        ((port,),) = sql(database, listening, f'LISTEN "{ol.store.channel}"')
        await aeventually(lambda: 0 < next_probe(port) <= KEEPALIVES["keepalives_idle"])


def next_probe(client: int) -> float:
    """Seconds until the server's side of a connection asks whether its client is there."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, _, _, timer, *_ = line.split()
        kind, _, ticks = timer.partition(":")
        if int(remote.partition(":")[2], 16) == client and kind == "02":
            return int(ticks, 16) / os.sysconf("SC_CLK_TCK")
    return 0.0


def proofs(database: Database) -> list[object]:
    return [proof for (proof,) in sql(database, "SELECT proof FROM {worker}")]
