"""Workers fire schedules: no leader, one job per tick, nothing asked while nothing is due."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from outlast import BatchContext, Context, Outlast
from outlast.model.schedule import tick_of_key
from tests.support import Database, aeventually

from .working import sql

QUICK = {"reclaim_every": 0.1, "poll_max": 0.2}


async def test_three_workers_fire_each_tick_once(ol: Outlast, database: Database) -> None:
    """R153, R234: code's schedules are there when a worker starts, and ctx.tick is the tick."""
    seen: list[datetime | None] = []

    @ol.task(every=1, overlap="allow")
    async def beat(ctx: Context) -> None:
        seen.append(ctx.tick)

    async with AsyncExitStack() as running:
        for _ in range(3):
            await running.enter_async_context(ol.worker(**QUICK))
        await aeventually(lambda: len(seen) >= 4, timeout=30)
    jobs = await ol.ajobs(limit=1000)
    ticks = [tick_of_key(job.key) for job in jobs]
    assert len(ticks) == len(set(ticks))
    assert all(tick is not None and tick.tzinfo is UTC for tick in seen)
    [schedule] = ol.schedules()
    assert schedule.fired == len(jobs)


async def test_a_worker_without_the_task_leaves_a_schedule_alone(
    ol: Outlast, database: Database
) -> None:
    """R234"""

    @ol.task
    def report() -> None: ...

    ol.create_schedule("often", report.job(), every=1)
    with Outlast(database.url, schema=database.schema) as other:

        @other.task(every=1)
        def mine() -> None: ...

        async with other.worker(**QUICK) as worker:
            await aeventually(lambda: worker.counts["schedules_fired"] >= 2, timeout=30)
            loops = {loop.name: loop for loop in worker.leases.loops}
            looked = loops["schedules"].passes, loops["reclaim"].passes
            await aeventually(lambda: loops["reclaim"].passes >= looked[1] + 20, timeout=30)
            assert loops["schedules"].passes <= looked[0] + 10, "another's is not asked for always"
    by_name = {one.name: one for one in ol.schedules()}
    assert by_name["often"].fired == 0
    async with ol.worker(**QUICK) as worker:
        await aeventually(lambda: worker.counts["schedules_fired"] >= 1, timeout=30)
    assert {one.name: one for one in ol.schedules()}["often"].fired >= 1


async def test_a_cancel_policy_stops_the_earlier_run(ol: Outlast) -> None:
    """R235"""
    stopped: list[str] = []

    @ol.task(every=1, overlap="cancel")
    async def long(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(ctx.job.id)
            raise

    async with ol.worker(**QUICK, concurrency=4, grace=0.1):
        await aeventually(lambda: len(stopped) >= 2, timeout=30)


async def test_schedules_that_are_not_due_cost_an_idle_worker_no_statement(ol: Outlast) -> None:
    """R236: the sign that one is due comes with a statement that is sent anyway."""

    @ol.task
    def report() -> None: ...

    for n in range(200):
        ol.schedule(f"s{n}", report.job(), cron="0 0 1 1 *", tz="Europe/Berlin")
    async with ol.worker(**QUICK) as worker:
        await aeventually(lambda: len(ol.schedules()) == 200, timeout=30)
        loops = {loop.name: loop for loop in worker.leases.loops}
        await aeventually(lambda: loops["schedules"].passes == 1, timeout=30)
        looked = loops["reclaim"].passes
        await aeventually(lambda: loops["reclaim"].passes >= looked + 10, timeout=30)
        assert loops["schedules"].passes == 1


async def test_a_batch_knows_the_ticks_of_its_items(ol: Outlast) -> None:
    """R234: of each item that a schedule made; another's is None."""
    seen: dict[int, datetime | None] = {}

    @ol.task(batch=10, wait=0.05)
    async def beat(items: list[int], ctx: BatchContext) -> None:
        assert ctx.ticks == tuple(item.tick for item in ctx.items)
        seen.update(zip(items, ctx.ticks, strict=True))

    ol.create_schedule("often", beat.job(1), every=1)
    await beat.aenqueue(2)
    async with ol.worker(**QUICK):
        await aeventually(lambda: seen.keys() == {1, 2}, timeout=30)
    assert seen[2] is None
    assert seen[1] in {tick_of_key(job.key) for job in await ol.ajobs(limit=1000)}


async def test_a_clock_that_was_set_right_sets_schedules_back(
    ol: Outlast, database: Database
) -> None:
    """R237: of a worker that runs on. By what it saw of the database's clock, that was an hour
    ahead; the schedule had fired by it."""

    @ol.task(every=3600)
    def report() -> None: ...

    async with ol.worker(**QUICK) as worker:
        await aeventually(lambda: len(ol.schedules()) == 1, timeout=30)
        firer = worker.leases.leases.maintenance.firer
        await aeventually(lambda: not firer._clock_was_ahead, timeout=30)  # as it was at the start
        [before] = ol.schedules()
        assert before.next_at is not None
        ahead = before.next_at.timestamp() + 7200
        for name, moment in (("next_at", ahead), ("last_tick", ahead - 3600)):
            value = f"{moment}" if database.is_sqlite else f"to_timestamp({moment})"
            sql(database, f"UPDATE {{schedule}} SET {name} = {value}")
        firer.observe(None, time.time() + 3600)
        await aeventually(lambda: ol.schedules()[0].next_at == before.next_at, timeout=30)
        assert "the clock was ahead" in str(ol.schedules()[0].note)
