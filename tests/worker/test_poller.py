"""How soon a worker finds work, what it costs to look, and that nothing depends on being told."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from outlast import Outlast
from outlast.ops.enqueue import notify_queues
from tests.support import Database, Postgres, Processes, aeventually

from .working import SLACK, TIMINGS, Spy, ended, work

POLL = TIMINGS["poll_max"] + 1.0


async def test_a_job_is_found_at_once_by_a_worker_that_is_told(
    ol: Outlast, database: Database, processes: Processes
) -> None:
    """R015: a wake-up for latency, also from another process, however rarely the worker looks."""
    started: list[float] = []

    @ol.task
    async def quick() -> None:
        started.append(time.monotonic())

    spy = Spy(ol)
    async with work(ol, poll_min=60.0, poll_max=60.0):
        await aeventually(lambda: spy.counts["poll"] >= 1)  # which follows the start of its watch
        before = time.monotonic()
        source = f"""
            from outlast import Outlast
            with Outlast({database.url!r}, schema={database.schema!r}) as ol:
                @ol.task
                def quick(): pass
                quick.enqueue()
            """
        processes.python(source)
        await aeventually(lambda: started, timeout=20)
        before = time.monotonic()
        await quick.aenqueue()
        await aeventually(lambda: len(started) == 2)
        assert started[1] - before < 1.0 + SLACK


@pytest.mark.kinds("postgres")
async def test_a_lost_listener_costs_no_job_and_comes_back_by_itself(
    ol: Outlast, postgres_server: Postgres
) -> None:
    """R016: its connection is ended from outside; polling alone finds the jobs."""
    listening = (
        "SELECT pid FROM pg_stat_activity WHERE query = %s AND backend_type = 'client backend'"
    )

    def listeners() -> list[int]:
        rows = postgres_server.execute(listening, (f'LISTEN "{ol.store.channel}"',))
        return [pid for (pid,) in rows]

    @ol.task
    async def quick() -> None: ...

    async with work(ol):
        [first] = await aeventually(listeners)
        postgres_server.execute("SELECT pg_terminate_backend(%s)", (first,))
        before = time.monotonic()
        await ol.aresult((await quick.aenqueue()).id, timeout=10)
        assert time.monotonic() - before < POLL + SLACK
        [second] = await aeventually(lambda: [pid for pid in listeners() if pid != first])
        assert second != first
        await ol.aresult((await quick.aenqueue()).id, timeout=10)


async def test_a_wake_up_for_a_job_that_has_ended_runs_nothing(ol: Outlast) -> None:
    """R022, R028: signals are hints; told a hundred times, a job still runs once."""
    runs: list[int] = []

    @ol.task
    async def once() -> None:
        runs.append(1)

    async with work(ol) as worker:
        job = await once.aenqueue()
        await ended(ol, job)
        claimed = worker.counts["claimed"]
        for _ in range(100):
            worker.on_notify("default")
            worker.on_notify("")
            if ol.store.can_notify:
                await ol.store.arun(notify_queues, ol.store.channel, ["default"])
        await ol.aresult((await once.using(key="next").aenqueue()).id, timeout=10)
        again = await once.using(key="next").aenqueue()
        assert again.state == "succeeded", "the same key is the same job, which has ended"
    assert (len(runs), worker.counts["claimed"] - claimed) == (2, 1)


async def idle_workers(ol: Outlast, number: int, seconds: float, poll_max: float) -> None:
    """So many workers with nothing to do: how often do they ask, and all at the same time?"""
    looks: list[list[float]] = []
    async with AsyncExitStack() as stack:
        spies = []
        for _ in range(number):
            own = Outlast(ol.store.address.url, schema=ol.store.address.schema)
            stack.push_async_callback(own.aclose)
            spies.append(Spy(own))
            await stack.enter_async_context(work(own, poll_max=poll_max))
        await asyncio.sleep(3 * poll_max)
        for spy in spies:
            spy.forget()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        seconds = time.monotonic() - began  # longer on a busy machine
        looks = [spy.times("poll") for spy in spies]
        asked = sum(sum(spy.counts.values()) for spy in spies)
    assert sum(map(len, looks)) <= number * seconds / poll_max * 1.5
    # Beside looking for work: renewals, looks for lost claims, duties.
    others = 3 / TIMINGS["renew_every"] + 1 / TIMINGS["reclaim_every"] + 2
    assert asked <= number * seconds * (1.5 / poll_max + 1.5 * others)
    gaps = [b - a for each in looks for a, b in pairwise(each)]
    assert statistics.stdev(gaps) > 0.1 * poll_max
    assert statistics.mean(gaps) > 0.7 * poll_max


@pytest.mark.kinds("postgres")
async def test_idle_workers_ask_rarely_and_not_in_step(ol: Outlast) -> None:
    """R015: a small sample of the campaign."""
    await idle_workers(ol, number=5, seconds=2.5, poll_max=0.25)


@pytest.mark.campaign
@pytest.mark.kinds("postgres")
async def test_fifty_idle_workers_ask_rarely_and_not_in_step(ol: Outlast) -> None:
    """R015"""
    await idle_workers(ol, number=50, seconds=60.0, poll_max=1.0)


@pytest.mark.kinds("sqlite")
async def test_idle_workers_on_one_file_do_not_wake_each_other_without_end(ol: Outlast) -> None:
    """R015: every commit wakes whoever watches the file; looking must not commit."""
    async with AsyncExitStack() as stack:
        spy = Spy(ol)
        for _ in range(3):
            await stack.enter_async_context(work(ol, poll_max=1.0))
        await asyncio.sleep(0.5)
        spy.forget()
        await asyncio.sleep(1.5)
        said = ("worker_heartbeat", "take_duty", "report_duty", "record_duty")
        writes = sum(spy.counts[name] for name in said)
        looks = spy.counts["poll"]
    assert looks <= 3 * (writes + 1.5 / 1.0) * 1.5


async def test_a_flood_of_small_jobs_takes_far_fewer_statements_than_jobs(ol: Outlast) -> None:
    """Outcomes go back and claims come in batches, in one round trip."""

    @ol.task
    async def nothing(n: int) -> None: ...

    number = 2000
    await ol.aenqueue(*(nothing.job(n) for n in range(number)))
    spy = Spy(ol)
    async with work(ol, concurrency=100) as worker:
        await aeventually(lambda: worker.counts["succeeded"] == number, timeout=30)
        assert 0 < spy.counts["claim"] + spy.counts["claim_on"] < number / 20
        assert 0 < spy.counts["succeed"] < number / 20
        assert sum(spy.counts.values()) < number / 5
        assert spy.round_trips < number / 8


async def test_what_maintenance_found_wakes_its_worker_as_any_news_do(ol: Outlast) -> None:
    """R194: and is counted with them."""
    async with work(ol, poll_min=60.0, poll_max=60.0) as worker:
        await aeventually(lambda: worker.leases.loops)
        before = worker.counts["woken"]
        for _ in range(1000):
            worker.leases.leases.maintenance._signals.poll()  # type: ignore[attr-defined]
        await aeventually(lambda: worker.counts["woken"] >= before + 1000)
