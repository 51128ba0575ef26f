"""Somebody else holds a write lock for longer than a lease: no job loses its owner for it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

import pytest

from outlast import Context, Outlast
from tests.support import Database, aeventually

from .working import started, work

JOBS = 5
MODES = ("EXCLUSIVE", "SHARE", "ACCESS EXCLUSIVE")  # the second one is that of a CREATE INDEX


@asynccontextmanager
async def locked(database: Database, mode: str) -> AsyncIterator[None]:
    """A stranger holds the lock that keeps everybody from writing jobs."""
    if database.is_sqlite:
        here = {"isolation_level": None, "timeout": 30.0, "check_same_thread": False}
        with closing(sqlite3.connect(database.path, **here)) as stranger:
            await asyncio.to_thread(stranger.execute, "BEGIN IMMEDIATE")
            yield
            stranger.execute("COMMIT")
        return
    with database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute(f"LOCK TABLE {database.schema}.job IN {mode} MODE")
        yield
        connection.execute("COMMIT")


async def hold_locks(ol: Outlast, database: Database, lease: float, longer: float) -> None:
    """Five running jobs, one worker that has them and one that looks for lost ones; three locks."""
    gate = asyncio.Event()
    starts: Counter[str] = Counter()

    @ol.task
    async def patient(ctx: Context) -> str:
        starts[ctx.job.id] += 1
        await gate.wait()
        return "done"

    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(work(ol, lease=lease, renew_every=lease / 4))
        jobs = await ol.aenqueue(*[patient.job() for _ in range(JOBS)])
        for job in jobs:
            await started(ol, job)
        other = work(ol, queues=["other"], lease=lease, renew_every=lease / 4, reclaim_every=0.1)
        await stack.enter_async_context(other)
        await aeventually(other.source._registration.proven.is_set)
        for mode in MODES:
            async with locked(database, mode):
                await asyncio.sleep(lease + longer)
            await asyncio.sleep(lease / 2)
        gate.set()
        for job in jobs:
            assert await ol.aresult(job.id, timeout=20) == "done"
        assert (owner.counts["lost"], owner.counts["refused"], other.counts["reclaimed"]) == (
            0,
            0,
            0,
        )
    for job in jobs:
        now = await ol.ajob(job.id)
        assert (now.fence, now.crashes, starts[job.id]) == (1, 0, 1)


@pytest.mark.quiet
async def test_a_lock_longer_than_the_lease_costs_no_job_its_owner(
    ol: Outlast, database: Database
) -> None:
    """R214: neither do others take it nor does its owner let go; a small sample of the campaign."""
    await hold_locks(ol, database, lease=2.4, longer=0.6)


@pytest.mark.campaign
async def test_a_lock_of_lease_and_four_seconds_costs_no_job_its_owner(
    ol: Outlast, database: Database
) -> None:
    """R214: in whole size."""
    await hold_locks(ol, database, lease=3.0, longer=4.0)
