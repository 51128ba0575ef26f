"""What a broken, silent or restarted database does to callers and workers."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from outlast import (
    DeadlineExceeded,
    JobNotFound,
    Outlast,
    StoreSettings,
    StoreUnavailable,
)
from outlast.model.ids import new_job_id
from outlast.ops import workers as worker_ops
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.reclaim import reclaim, reclaim_from_workers, signs_of_loss
from outlast.ops.renew import renew
from tests.support import Database, Postgres, Proxy, aeventually, eventually


def client(database: Database, url: str | None = None, **settings: float) -> Outlast:
    return Outlast(url or database.url, schema=database.schema, settings=StoreSettings(**settings))


def verbs(ol: Outlast, add: Any) -> dict[str, Callable[[], Any]]:
    """Every kind of operation that callers and workers do, as a call."""
    first = add.enqueue(n=0).id
    wanted = ClaimRequest("w", "default", 1, 60.0)
    return {
        "enqueue": lambda: add.enqueue(n=1),
        "enqueue with a key": lambda: add.using(key="k").enqueue(n=1),
        "enqueue many": lambda: ol.enqueue(*(add.job(n=n) for n in range(10))),
        "job": lambda: ol.job(first),
        "jobs": ol.jobs,
        "counts": ol.counts,
        "claim": lambda: ol.store.run(claim, wanted),
        "renew": lambda: ol.store.run(renew, "w", {first: 1}, 60.0),
        "reclaim": lambda: ol.store.run(reclaim),
        "pause": lambda: ol.pause("other"),
        "resume": lambda: ol.resume("other"),
        "cancel": lambda: ol.cancel(add.enqueue(n=2).id),
        "explain": lambda: ol.explain(first),
    }


@pytest.mark.kinds("postgres")
def test_every_operation_survives_the_loss_of_its_idle_connection(
    database: Database, postgres_server: Postgres
) -> None:
    """R169: terminate every connection before each kind of operation → it succeeds, once."""
    with client(database) as ol:
        add = ol.task(name="add")(_add)
        calls = verbs(ol, add)
        for name, call in calls.items():
            before = sum(ol.counts().values())
            end_connections(postgres_server)
            call()
            grown = sum(ol.counts().values()) - before
            wanted = {"enqueue": 1, "enqueue with a key": 1, "enqueue many": 10, "cancel": 1}
            assert grown == wanted.get(name, 0), name


@pytest.mark.kinds("postgres")
async def test_the_asyncio_pool_survives_too(database: Database, postgres_server: Postgres) -> None:
    """R169: the same for the a-verbs."""
    async with client(database) as ol:
        add = ol.task(name="add")(_add)
        for number in range(3):
            await asyncio.to_thread(end_connections, postgres_server)
            await add.aenqueue(n=number)
        assert (await ol.acounts())["ready"] == 3


@pytest.mark.kinds("postgres")
def test_a_silent_database_costs_one_deadline(database: Database, proxy: Proxy) -> None:
    """R169: a half-open connection cannot hang a caller."""
    with client(database) as direct:
        direct.migrate()
    with client(database, proxy.url(database.url), deadline=2.0, connect_timeout=2) as ol:
        ol.counts()
        proxy.freeze()
        begun = time.monotonic()
        with pytest.raises((DeadlineExceeded, StoreUnavailable)):
            ol.counts()
        assert time.monotonic() - begun < 15.0
        proxy.thaw()
        assert ol.counts()["ready"] == 0


@pytest.mark.kinds("postgres")
async def test_a_silent_database_costs_an_asyncio_caller_one_deadline(
    database: Database, proxy: Proxy
) -> None:
    """R169: nor an asyncio one; and a cancelled caller is let go at once."""
    with client(database) as direct:
        direct.migrate()
    ol = client(database, proxy.url(database.url), deadline=2.0, connect_timeout=2)
    async with ol:
        await ol.acounts()
        proxy.freeze()
        with pytest.raises((DeadlineExceeded, StoreUnavailable)):
            await asyncio.wait_for(ol.acounts(), 15.0)
        proxy.thaw()
        await ol.acounts()
        proxy.freeze()
        waiting = asyncio.create_task(ol.acounts())
        await asyncio.sleep(0.05)
        waiting.cancel()
        begun = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert time.monotonic() - begun < 1.5, "long before its deadline"
        proxy.thaw()


@pytest.mark.kinds("postgres")
def test_a_lost_answer_never_makes_a_second_job(database: Database, proxy: Proxy) -> None:
    """R004, R170: the server committed, the answer was cut off, the client sent it again."""
    with client(database, proxy.url(database.url)) as ol:
        add = ol.task(name="add")(_add)
        ol.migrate()
        for number in range(20):
            trap = proxy.swallow_reply_after(b'{"n":%d}' % number)  # a parameter of its insert
            job = add.enqueue(n=number)
            trap.wait()
            assert ol.job(job.id).args == {"n": number}
        assert ol.counts()["ready"] == 20


def test_a_database_that_is_not_there_is_said_to_be_so(database: Database) -> None:
    """R178: a caller is told at once; nothing hangs."""
    if database.is_sqlite:
        ol = Outlast("sqlite:////proc/nowhere/jobs.db")
    else:
        ol = Outlast("postgresql://postgres@127.0.0.1:1/nothing")
    with ol, pytest.raises(StoreUnavailable):
        ol.task(name="add")(_add).enqueue(n=1)


@pytest.mark.kinds("postgres")
async def test_a_worker_waits_for_a_database_that_is_not_up_yet(own_postgres: Postgres) -> None:
    """R178: start before the database → working soon after it is up, without a restart."""
    own_postgres.stop()
    ol = Outlast(own_postgres.url(), schema="late")
    add = ol.task(name="add")(_add)
    async with ol, ol.worker(lease=2.0, renew_every=0.5, poll_max=0.2):
        await asyncio.sleep(0.5)
        own_postgres.start()
        job = await aretry(lambda: add.aenqueue(n=1))
        assert await ol.aresult(job.id, timeout=20) == 2


@pytest.mark.kinds("postgres")
async def test_workers_survive_restarts_of_the_database_under_load(own_postgres: Postgres) -> None:
    """R171: restart PostgreSQL three times under load → every accepted job has one result."""
    ol = Outlast(own_postgres.url(), schema="restart")
    ran: list[int] = []

    @ol.task
    async def work(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0.01)
        return n

    async with ol:
        accepted: list[str] = []
        stop = threading.Event()

        async def more(those: list[Any], number: int) -> None:
            before = len(those)
            await aeventually(lambda: len(those) >= before + number, timeout=30)

        async def enqueue_all() -> None:
            number = 0
            while not stop.is_set():
                try:
                    accepted.extend(
                        job.id for job in await ol.aenqueue(*(work.job(number) for _ in range(20)))
                    )
                    number += 1
                except StoreUnavailable:
                    pass
                await asyncio.sleep(0.02)

        async with ol.worker(concurrency=20, lease=2.0, renew_every=0.5, poll_max=0.2):
            enqueuing = asyncio.create_task(enqueue_all())
            for how in (2, 3, 2):  # SIGINT, SIGQUIT (immediate), SIGINT
                await more(accepted, 100)
                await more(ran, 20)
                await asyncio.to_thread(own_postgres.restart, how)
            await more(accepted, 20)
            stop.set()
            await enqueuing

            async def settled() -> bool:
                try:
                    counts = await ol.acounts()
                except StoreUnavailable:
                    return False
                return not any(counts[s] for s in ("ready", "scheduled", "running", "waiting"))

            await aeventually(settled, timeout=60)
        assert len(accepted) > 100
        states = {job.id: job.state for job in await ol.ajobs(limit=100_000)}
        assert [id for id in accepted if states.get(id) != "succeeded"] == []


def test_a_malformed_id_names_no_job(database: Database) -> None:
    """R117: whatever is asked for, the answer is a sentence, not a database error."""
    with client(database) as ol:
        ol.migrate()
        for id in ("", "x", "1 OR 1=1", "\x00", new_job_id()):
            with pytest.raises(JobNotFound):
                ol.job(id)


def _add(n: int) -> int:
    return n + 1


def end_connections(server: Postgres) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'outlast' AND pid <> pg_backend_pid()"
    )


async def aretry(call: Callable[[], Any], timeout: float = 20.0) -> Any:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await call()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


@pytest.mark.kinds("postgres")
def test_when_the_server_lost_its_memory_a_newcomer_buries_nobody(own_postgres: Postgres) -> None:
    """R033, R171: one of its processes is killed, and every lock is gone although the server keeps
    the time of its start. Whoever lives has not come back yet."""
    with Outlast(own_postgres.url(), schema="memory") as ol:
        add = ol.task(name="add")(_add)
        add.enqueue(n=1)
        ol.store.run(worker_ops.register, ol.worker().registration_row() | {"id": "living"})
        with psycopg.connect(own_postgres.url(), autocommit=True) as session:
            session.execute("SELECT pg_advisory_lock(hashtextextended('living', 0))")
            ol.store.run(worker_ops.prove_liveness, "living")
            assert ol.store.run(worker_ops.heartbeat, "living", 0, "working") == (True, True)
            ol.store.run(claim, ClaimRequest("living", "default", 1, 60.0))
            os.kill(session.info.backend_pid, signal.SIGKILL)
        eventually(lambda: _answers(own_postgres))
        assert ol.store.run(signs_of_loss).workers == ()
        assert ol.store.run(reclaim_from_workers, ["living"], "lock").found == 0
        assert ol.store.run(worker_ops.heartbeat, "living", 0, "working") == (True, False)
        ol.store.run(worker_ops.prove_liveness, "living")
        assert ol.store.run(signs_of_loss).workers == ("living",), "now its absence says something"


def _answers(server: Postgres) -> bool:
    try:
        return bool(server.execute("SELECT 1"))
    except psycopg.OperationalError:
        return False
