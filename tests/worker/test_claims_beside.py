"""While handlers are short and a queue gives its fill, a worker claims more than it has slots for,
and begins the next claim before the last has returned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest

from outlast import Context, Job, Outlast, group
from outlast.worker import coroutine_runner, job_source
from outlast.worker.worker import Worker
from tests.support import Database, aeventually
from tests.worker.beside import AT_ONCE, SLOTS, Requests, succeeded
from tests.worker.working import Spy, sql, work

# Quiet: handlers that wait for a processor are not short, and then nothing is claimed beside.
pytestmark = [pytest.mark.kinds("postgres"), pytest.mark.quiet]


@pytest.mark.usefixtures("short_handlers")
async def test_two_claims_are_under_way_and_many_jobs_share_each(
    ol: Outlast, requests: Requests
) -> None:
    """R024: counted, and not timed. Each job runs once."""
    ran: list[int] = []

    @ol.task
    async def short(n: int) -> None:
        ran.append(n)

    number = 40 * AT_ONCE
    await ol.aenqueue(*map(short.job, range(number)))
    spy = Spy(ol)
    async with work(ol, concurrency=SLOTS) as worker:
        await succeeded(worker, number)
    assert sorted(ran) == list(range(number))
    assert requests.most == 2
    assert len(requests.beside) >= 10
    assert max(requests.limits) == AT_ONCE
    assert spy.counts["succeed"] <= 50, "by the number of slots, it would be two hundred"


@pytest.mark.usefixtures("short_handlers")
async def test_many_ends_of_a_group_share_each_too(ol: Outlast, requests: Requests) -> None:
    """R092: by a statement that is prepared, in two round trips; the last of them starts what comes
    after all, once."""
    ran: list[int] = []

    @ol.task
    async def short(n: int) -> None:
        ran.append(n)

    number = 20 * AT_ONCE
    ol.enqueue(group(*map(short.job, range(number))).then(short.job(number)))
    spy = Spy(ol)
    async with work(ol, concurrency=SLOTS) as worker:
        await succeeded(worker, number + 1)
    assert ran[-1] == number and sorted(ran) == list(range(number + 1))
    assert requests.beside, "else this shows nothing"
    assert spy.counts["finish"] == 0
    assert spy.counts["succeed_tied"] == spy.counts["notify_followers"] <= 30


async def test_handlers_that_take_their_time_are_not_claimed_ahead(
    ol: Outlast, requests: Requests
) -> None:
    """R182: no more than as many again, and those only as long as handlers are short."""
    in_hand = 0

    @ol.task
    async def steady() -> None:
        nonlocal in_hand
        in_hand = max(in_hand, len(worker.in_flight))
        time.sleep(0.002)  # noqa: ASYNC251 - it takes the time of the event loop

    number = 30 * SLOTS
    await ol.aenqueue(*(steady.job() for _ in range(number)))
    async with work(ol, concurrency=SLOTS) as worker:
        await succeeded(worker, number)
    assert in_hand <= 4 * SLOTS, "running, on their way back, and two claims"
    assert max(requests.limits) <= SLOTS


@pytest.mark.usefixtures("short_handlers")
async def test_a_handler_that_blocks_leaves_the_event_loop_its_turns(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R182: between two batches of handlers, not after all that is in hand."""
    monkeypatch.setattr(coroutine_runner, "LOOP_TURN_S", 0.0)
    turns: list[int] = []

    @ol.task
    async def short(n: int) -> None:
        if len(turns) <= n:
            turns.append(ticks)

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticks, number = 0, 10 * AT_ONCE
    ticking = asyncio.create_task(tick())
    await ol.aenqueue(*map(short.job, range(number)))
    async with work(ol, concurrency=SLOTS) as worker:
        await succeeded(worker, number)
    ticking.cancel()
    assert max(turns.count(turn) for turn in set(turns)) <= SLOTS


@pytest.mark.usefixtures("short_handlers")
async def test_suspects_are_claimed_one_at_a_time_by_all_claims_together(
    ol: Outlast, database: Database, requests: Requests
) -> None:
    """R049: no two of the jobs that one more lost worker would end share a process."""
    most = 0

    @ol.task
    async def short() -> None:
        nonlocal most
        held = worker.in_flight.running() + worker.in_flight.ended()
        most = max(most, sum(job.claim.one_crash_left for job in held))

    number = 20 * AT_ONCE
    await ol.aenqueue(*(short.job() for _ in range(number)))
    sql(database, "UPDATE {job} SET crashes = max_crashes - 1")
    sql(database, "UPDATE {job} SET crashes = 0 WHERE right(CAST(id AS text), 1) <> '0'")
    async with work(ol, concurrency=SLOTS) as worker:
        await succeeded(worker, number)
    assert requests.beside, "else this shows nothing"
    assert most == 1


@contextmanager
def locked(database: Database) -> Iterator[None]:
    """Nobody can change a job meanwhile."""
    with psycopg.connect(database.direct_url) as connection:
        connection.execute(f"LOCK TABLE {database.schema}.job IN EXCLUSIVE MODE")
        yield
        connection.rollback()


@asynccontextmanager
async def stuck(worker: Worker, requests: Requests, database: Database) -> AsyncIterator[None]:
    """Two claims are under way, and wait for a lock."""
    for _ in range(50):
        with locked(database):
            try:
                await aeventually(lambda: requests.under_way == 2, timeout=0.3)
            except AssertionError:
                continue
            yield
            return
    raise AssertionError("no two claims were ever under way")


@pytest.mark.usefixtures("short_handlers")
async def test_a_worker_that_stops_releases_what_is_under_way(
    ol: Outlast, database: Database, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R182: it is waited for and released at once, unspent."""
    monkeypatch.setattr(job_source, "PREFETCH_FOR_S", 60.0)
    ran: list[int] = []

    @ol.task
    async def short(n: int) -> None:
        ran.append(n)

    number = 400 * AT_ONCE
    await ol.aenqueue(*map(short.job, range(number)))
    async with asyncio.timeout(60), work(ol, concurrency=SLOTS, grace=300) as worker:
        await aeventually(lambda: len(ran) > AT_ONCE)
        async with stuck(worker, requests, database):
            worker.stop()
            before = len(ran)
        await aeventually(lambda: not worker.in_flight)
    assert len(ran) == before
    assert not worker.source._pending
    counts = ol.counts()
    assert counts["succeeded"] == len(ran) == len(set(ran)) < number
    assert counts["ready"] == number - len(ran)
    spent = sql(database, "SELECT count(*) FROM {job} WHERE state = 'ready' AND attempt > 0")
    assert spent == [(0,)]


@pytest.mark.usefixtures("short_handlers")
async def test_what_ends_otherwise_while_a_claim_begins_is_stored_as_it_ended(
    ol: Outlast, database: Database, requests: Requests
) -> None:
    """R001: a failure is none of the successes that go with it, and what a job said is stored
    before its end."""

    @ol.task(max_attempts=1)
    async def short(n: int, ctx: Context) -> None:
        batch, last = divmod(n, AT_ONCE)
        if last == AT_ONCE - 1:  # it ends when the next claim is about to be sent
            await asyncio.sleep(0)
            if batch % 8 == 6:
                ctx.log("waited")
            elif batch % 8 == 7:
                raise ValueError("as asked")

    jobs = list[Job]()

    def all_ended() -> bool:
        return worker.counts["succeeded"] + worker.counts["dead"] == len(jobs)

    async with work(ol, concurrency=AT_ONCE) as worker:
        while not requests.beside:  # no claim begins beside another where handlers are not short
            jobs += await ol.aenqueue(*map(short.job, range(160 * AT_ONCE)))
            await aeventually(all_ended, timeout=60)
    last = [job.id for job in jobs[AT_ONCE - 1 :: AT_ONCE]]
    dead = sql(database, "SELECT CAST(id AS text) FROM {job} WHERE state = 'dead'")
    assert sorted(dead) == sorted((id,) for id in last[7::8])
    said = sql(database, "SELECT CAST(job AS text) FROM {event} WHERE kind = 'log'")
    assert sorted(said) == sorted((id,) for id in last[6::8])
