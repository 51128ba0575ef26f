"""A cancel in the caller's transaction reaches the worker of a running job after the commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import Outlast
from tests.support import Database

from .working import TIMINGS, ended, started, work


def opened(database: Database) -> Any:
    if database.is_sqlite:
        import sqlite3

        return sqlite3.connect(database.path)
    import psycopg

    return psycopg.connect(database.direct_url)


async def test_a_running_job_is_stopped_after_the_commit_and_not_by_a_rollback(
    ol: Outlast, database: Database
) -> None:
    """R115, R002"""
    gate = asyncio.Event()

    @ol.task
    async def wait(n: int) -> int:
        await gate.wait()
        return n

    mine = opened(database)
    async with work(ol):
        stopped, kept = await ol.aenqueue(wait.job(1), wait.job(2))
        await started(ol, stopped)
        await started(ol, kept)
        ol.cancel(kept.id, conn=mine)
        mine.rollback()
        ol.cancel(stopped.id, conn=mine)
        mine.commit()
        assert (await ended(ol, stopped)).state == "cancelled"
        gate.set()
        assert await ol.aresult(kept.id, timeout=20) == 2
    mine.close()


@pytest.mark.kinds("postgres")
async def test_an_open_transaction_that_cancels_costs_neither_lease_nor_neighbours(
    ol: Outlast, database: Database
) -> None:
    """R214: the row is locked for longer than a lease; the job keeps its owner, and jobs of other
    rows end meanwhile."""

    @ol.task
    async def wait(n: int) -> int:
        await asyncio.sleep(3600)
        return n

    @ol.task
    async def quick(n: int) -> int:
        return n

    mine = opened(database)
    lease = TIMINGS["lease"]
    async with work(ol, lease=lease, renew_every=lease / 4) as worker:
        held = await wait.aenqueue(1)
        await started(ol, held)
        ol.cancel(held.id, conn=mine)
        until = asyncio.get_running_loop().time() + lease + 1.0
        while asyncio.get_running_loop().time() < until:
            job = await quick.aenqueue(2)
            assert await ol.aresult(job.id, timeout=20) == 2
        mine.commit()
        end = await ended(ol, held)
        assert (end.state, end.fence, end.crashes) == ("cancelled", 1, 0)
        assert worker.counts["lost"] == 0
    mine.close()
