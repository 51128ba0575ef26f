"""Workers beside other things: in a web app, in a thread, two of them in one process."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from outlast import Context, Job, Outlast, SchemaMismatch
from outlast.metrics.health import worker_alive
from outlast.worker.heartbeat import HeartbeatThread
from tests.support import Database, aeventually, eventually

from .working import ended, sql, started, work


async def test_a_worker_lives_and_dies_with_the_web_app_it_is_part_of(ol: Outlast) -> None:
    """In a lifespan: jobs run while the app serves, and what runs at its end is finished."""
    finished: list[str] = []

    @ol.task
    async def extract(doc: int) -> dict[str, int]:
        return {"pages": doc * 2}

    @ol.task
    async def slow() -> None:
        await asyncio.sleep(0.3)
        finished.append("slow")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with work(ol):
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/docs/{doc}")
    async def submit(doc: int) -> dict[str, str]:
        return {"job": (await extract.aenqueue(doc)).id}

    @app.get("/results/{job}")
    async def result(job: str) -> Any:
        return await ol.aresult(job, timeout=10)

    transport = ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        answers = await asyncio.gather(*(client.post(f"/docs/{doc}") for doc in range(10)))
        jobs = [answer.json()["job"] for answer in answers]
        found = [(await client.get(f"/results/{job}")).json() for job in jobs]
        assert found == [{"pages": doc * 2} for doc in range(10)]
        last = await slow.aenqueue()
        await started(ol, last)
    assert finished == ["slow"]
    assert (await ol.ajob(last.id)).state == "succeeded"
    assert await ol.aworkers() == []


async def test_stop_from_another_thread_drains_and_leaving_the_block_does_not_hurry_it(
    ol: Outlast,
) -> None:
    """R182: what runs is let finish, although the block's end asks a second time."""
    finished: list[int] = []

    @ol.task
    async def slow(n: int) -> None:
        await asyncio.sleep(0.5)
        finished.append(n)

    async with work(ol, grace=10.0) as worker:
        running = await slow.aenqueue(1)
        await started(ol, running)
        threading.Thread(target=worker.stop).start()
        await aeventually(lambda: worker.stopping)
        waiting = await slow.aenqueue(2)
    assert finished == [1]
    assert (await ol.ajob(running.id)).state == "succeeded"
    assert (await ol.ajob(waiting.id)).state == "ready", "it stopped claiming"


def test_a_worker_runs_in_a_thread_of_a_program_that_does_not_know_asyncio(ol: Outlast) -> None:
    """`asyncio.run(worker.arun())` in a thread; the sync verbs around it; stop() from outside."""

    @ol.task
    def double(n: int) -> int:
        return n * 2

    worker = work(ol)
    thread = threading.Thread(target=lambda: asyncio.run(worker.arun()))
    thread.start()
    try:
        jobs = ol.enqueue(*(double.job(n) for n in range(20)))
        assert [ol.result(job.id, timeout=20) for job in jobs] == [n * 2 for n in range(20)]
    finally:
        worker.stop()
        thread.join(10)
    assert not thread.is_alive()
    assert eventually(lambda: ol.workers() == [])


async def test_two_workers_in_one_process_share_the_work(ol: Outlast) -> None:
    """R024: every job once; both are listed, and each leaves by itself."""
    owners: dict[str, str | None] = {}

    @ol.task
    async def note(ctx: Context) -> None:
        assert ctx.job.id not in owners
        owners[ctx.job.id] = ctx.job.worker
        await asyncio.sleep(0.01)

    async with work(ol, concurrency=3) as one, work(ol, concurrency=3) as two:
        await aeventually(lambda: len(ol.workers()) == 2)
        jobs = await ol.aenqueue(*(note.job() for _ in range(100)))
        for job in jobs:
            await ol.aresult(job.id, timeout=20)
        two.stop()
        await aeventually(lambda: [each.id for each in ol.workers()] == [one.id])
        await ended(ol, await note.aenqueue())
    assert set(owners.values()) == {one.id, two.id}
    assert len(owners) == 101


async def test_a_worker_that_cannot_work_with_the_tables_says_so_instead_of_waiting(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R176: tables of a newer release; beside a web app the failure is in the log, and raised."""
    await ol.amigrate()
    table = "outlast_migration" if database.is_sqlite else f"{database.schema}.migration"
    sql(database, f"INSERT INTO {table} SELECT 999, 999, applied_at FROM {table} LIMIT 1")
    with Outlast(database.url, schema=database.schema) as older:
        with pytest.raises(SchemaMismatch):
            async with work(older):
                await aeventually(lambda: "the worker ended" in caplog.text)
        assert [r.levelno for r in caplog.records if "ended" in r.message] == [logging.CRITICAL]
        await older.aclose()


async def test_a_worker_whose_keeper_dies_does_not_stay_half_alive(ol: Outlast) -> None:
    """R190: the thread that renews is killed: nothing is held that nobody renews."""

    @ol.task
    async def long(ctx: Context) -> None:
        if ctx.fence == 1:
            await asyncio.sleep(60)

    worker = work(ol)
    running = asyncio.create_task(worker.arun())
    job = await long.aenqueue()
    await started(ol, job)
    before = time.monotonic()
    loop = worker.leases._loop
    assert loop is not None
    loop.call_soon_threadsafe(loop.stop)  # its event loop ends under it
    with pytest.raises(Exception, match="stopped itself"):
        await running
    assert time.monotonic() - before < 2.0 + 2.0

    async def free() -> Job | None:
        now = await ol.ajob(job.id)
        return now if now.state == "ready" else None

    released = await aeventually(free)
    assert (released.attempt, released.crashes) == (0, 0)


async def test_a_worker_that_has_waited_long_for_its_database_begins_alive(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R188: its thread has not stood still; it was not there."""

    async def no_pulse_yet(keeper: HeartbeatThread) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(HeartbeatThread, "watchdog", no_pulse_yet)
    worker = work(ol)
    worker.leases.watchdog_at -= 3600.0  # type: ignore[misc]  # so long ago was it made
    async with worker:
        await aeventually(lambda: worker.leases.started)
        assert worker_alive(worker).ok


def test_a_worker_in_a_thread_keeps_no_process_alive(database: Database) -> None:
    """Whoever started it as a daemon may just return from main: nothing of it is waited for."""
    program = f"""
import asyncio, threading
from outlast import Outlast
ol = Outlast({database.url!r}, schema={database.schema!r})
worker = ol.worker()
threading.Thread(target=lambda: asyncio.run(worker.arun()), daemon=True).start()
while not worker.source._registration.proven.is_set():
    threading.Event().wait(0.01)
print("watching")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, timeout=60, capture_output=True, check=False)
    assert done.stdout == b"watching\n", done.stderr.decode()


async def test_all_of_a_batch_is_in_hand_before_the_first_of_it_runs(ol: Outlast) -> None:
    """R029, R034: what blocks the event loop at its first line costs its neighbours no lease."""
    in_hand: list[int] = []

    @ol.task
    async def blocks() -> None:
        in_hand.append(len(worker.in_flight))

    await ol.aenqueue(*(blocks.job() for _ in range(5)))
    async with work(ol) as worker:
        await aeventually(lambda: worker.counts["succeeded"] == 5)
    assert in_hand[0] == 5
