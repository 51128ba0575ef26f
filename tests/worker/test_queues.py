"""Whose turn it is: order, priorities, queues that must not starve or stop each other."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace

import pytest

from outlast import Context, InvalidOption, Outlast, Retry
from outlast.model.errors import StoreBusy
from outlast.model.settings import WorkerSettings
from outlast.ops.claim import ClaimCursor, ClaimRequest
from outlast.worker.poller import Poller
from tests.store.jobs import put, put_and_take
from tests.support import Database, aeventually, eventually

from .working import SLACK, TIMINGS, Spy, change, ended, sql, work


async def test_jobs_start_by_priority_and_then_in_the_order_they_came(ol: Outlast) -> None:
    """R037: mixed priorities, one at a time: the order is exact."""
    order: list[str] = []

    @ol.task
    async def note(ctx: Context) -> None:
        order.append(ctx.job.id)

    urgencies = [random.Random(7).choice([-100, -1, 0, 1, 100]) for _ in range(40)]
    jobs = [await note.using(priority=urgency).aenqueue() for urgency in urgencies]
    async with work(ol, concurrency=1):
        await aeventually(lambda: len(order) == len(jobs))
    wanted = sorted(jobs, key=lambda job: (-job.priority, job.run_at, job.id))
    assert order == [job.id for job in wanted]
    with pytest.raises(InvalidOption, match="priority"):
        note.using(priority=101)


async def test_a_released_job_keeps_its_place_and_a_retried_one_does_not_jump_the_line(
    ol: Outlast,
) -> None:
    """R037, R038: given back unspent it is first again; failed, it waits for its own moment."""
    order: list[str] = []
    gate = asyncio.Event()

    @ol.task(retry=Retry(max_attempts=2, base=0.3, jitter=0.0))
    async def note(name: str, ctx: Context) -> None:
        order.append(f"{name}{ctx.attempt}")
        if name == "first" and not gate.is_set():
            await asyncio.sleep(60)
        if name == "second" and ctx.attempt == 1:
            raise OSError("once")

    names = ["first", "second", "third"]
    jobs = [await note.aenqueue(name) for name in names]
    async with work(ol, concurrency=1, grace=0.0):
        await aeventually(lambda: order)
    assert {(await ol.ajob(job.id)).state for job in jobs} == {"ready"}
    assert (await ol.ajob(jobs[0].id)).attempt == 0
    gate.set()
    before = time.monotonic()
    async with work(ol, concurrency=1):
        await aeventually(lambda: len(order) >= 2)
        assert time.monotonic() - before < TIMINGS["poll_max"] + 1 + SLACK
        for job in jobs:
            await ol.aresult(job.id, timeout=10)
    assert order == ["first1", "first1", "second1", "third1", "second2"]


async def test_one_long_and_one_failing_job_hold_up_nobody(ol: Outlast) -> None:
    """R018: a hundred others finish while the first still runs and the second keeps failing."""
    stop = asyncio.Event()

    @ol.task
    async def long() -> None:
        await stop.wait()

    @ol.task(retry=Retry(max_attempts=1000, base=0.0, jitter=0.0))
    async def fails() -> None:
        raise OSError("always")

    @ol.task
    def other(n: int) -> int:
        return n

    async with work(ol, concurrency=4):
        first, second = await ol.aenqueue(long.job(), fails.job())
        others = await ol.aenqueue(*(other.job(n) for n in range(100)))
        for job in others:
            await ol.aresult(job.id, timeout=20)
        assert (await ol.ajob(first.id)).state == "running"
        assert (await ol.ajob(second.id)).failures > 0
        stop.set()
        await ol.acancel(second.id)
        await ended(ol, first)


async def test_a_queue_that_is_always_full_does_not_starve_another(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R020: a job elsewhere gets its turn soon, although nobody hears that it has come."""
    done: list[int] = []
    waits: list[float] = []

    @ol.task(queue="a")
    async def flood(n: int) -> None:
        await asyncio.sleep(0.005)
        done.append(n)

    @ol.task(queue="b")
    async def rare(since: float) -> None:
        waits.append(time.monotonic() - since)

    await ol.aenqueue(*(flood.job(n) for n in range(1500)))
    worker = work(ol, concurrency=2)
    monkeypatch.setattr(worker, "on_notify", lambda _queue: None)
    async with worker:
        await aeventually(lambda: len(done) > 20)
        for n in range(3):
            await rare.aenqueue(time.monotonic())
            await aeventually(lambda n=n: len(waits) == n + 1)
        left = (await ol.acounts())["ready"]
        assert left > 0, "it was full all the time"
        worker.stop()
    assert max(waits) < 0.5 + SLACK


@pytest.mark.kinds("sqlite")
@pytest.mark.usefixtures("hasty")
async def test_a_queue_that_cannot_be_read_stops_no_other(
    ol: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    """R019: claims of the one fail again and again; the other does not even slow down."""

    @ol.task
    async def fine(n: int) -> int:
        return n

    spy = Spy(ol)
    spy.refuse("claim", StoreBusy(reason="somebody locked it"), times=5, queue="one")
    broken = await fine.using(queue="one").aenqueue(-1)
    async with work(ol) as worker:
        await aeventually(lambda: worker.counts["turn_failed"] > 0)
        before = time.monotonic()
        for n in range(20):
            job = await fine.using(queue="two").aenqueue(n)
            assert await ol.aresult(job.id, timeout=15) == n
        assert time.monotonic() - before < 2.0 + SLACK
        assert await ol.aresult(broken.id, timeout=30) == -1, "and the one recovers"
        assert worker.counts["turn_failed"] == 5
    assert "claiming from 'one' failed" in caplog.text
    assert "next try in" not in caplog.text, "the worker itself never had to wait"


async def test_a_worker_serves_the_queues_it_was_given_and_no_others(ol: Outlast) -> None:
    """`queues=` names them; all, if none are named; none at all is a mistake."""
    ran: list[str] = []

    @ol.task
    async def note(ctx: Context) -> None:
        ran.append(ctx.job.queue)

    jobs = [await note.using(queue=queue).aenqueue() for queue in ("a", "b", "c")]
    async with work(ol, queues=["a", "b"]) as worker:
        for job in jobs[:2]:
            await ended(ol, job)
        assert worker.queues == ["a", "b"]
        worker.on_notify("c")
        worker.on_notify("")
        await ended(ol, await note.using(queue="b").aenqueue())
        assert (await ol.ajob(jobs[2].id)).state == "ready"
        assert [each.queues for each in await ol.aworkers()] == [["a", "b"]]
    assert sorted(ran) == ["a", "b", "b"]
    async with work(ol, queues="c"):
        await ended(ol, jobs[2])
    with pytest.raises(InvalidOption, match="queues"):
        ol.worker(queues=[])


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(ol: Outlast) -> None:
    """R119: within a poll; what runs goes on; a restart does not forget it."""
    gate = asyncio.Event()
    started: list[int] = []

    @ol.task
    async def note(n: int) -> int:
        started.append(n)
        if n == 0:
            await gate.wait()
        return n

    async with work(ol):
        running = await note.aenqueue(0)
        await aeventually(lambda: started == [0])
        await ol.apause("default")
        waiting = [await note.aenqueue(n) for n in (1, 2)]
        elsewhere = await note.using(queue="open").aenqueue(9)
        assert await ol.aresult(elsewhere.id, timeout=10) == 9
        await asyncio.sleep(2 * TIMINGS["poll_max"])
        assert started == [0, 9]
        gate.set()
        assert await ol.aresult(running.id, timeout=10) == 0
    async with work(ol):
        await ol.aresult((await note.using(queue="open").aenqueue(8)).id, timeout=10)
        assert started == [0, 9, 8], "it is still paused"
        before = time.monotonic()
        await ol.aresume("default")
        assert [await ol.aresult(job.id, timeout=10) for job in waiting] == [1, 2]
        assert time.monotonic() - before < TIMINGS["poll_max"] + 1 + SLACK


@pytest.mark.kinds("sqlite")
async def test_a_worker_short_of_memory_waits_instead_of_claiming(ol: Outlast) -> None:
    """R192: nothing is claimed and nothing fails; it goes on when there is memory again."""

    @ol.task
    async def fine() -> str:
        return "fine"

    async with work(ol, memory_floor=1_000_000_000) as worker:
        job = await fine.aenqueue()
        await aeventually(lambda: worker.counts["deferred_for_memory"] > 1)
        waiting = await ol.ajob(job.id)
        assert (waiting.state, waiting.attempt, waiting.fence) == ("ready", 0, 0)
        change(worker, memory_floor=1)
        assert await ol.aresult(job.id, timeout=10) == "fine"


async def test_a_started_job_shows_that_it_is_running_and_where(
    ol: Outlast, database: Database
) -> None:
    """R042, R121: the claim itself is the change, so the handler already sees it."""

    @ol.task
    def look(ctx: Context) -> list[str | None]:
        now = ol.job(ctx.job.id)
        return [now.state, now.worker, ctx.job.worker, ctx.job.state]

    async with work(ol) as worker:
        job = await look.aenqueue()
        seen = await ol.aresult(job.id, timeout=10)
    assert seen == ["running", worker.id, worker.id, "running"]
    assert sql(database, "SELECT count(*) FROM {worker}") == [(0,)], "it has said goodbye"


async def test_whoever_comes_to_stand_before_a_busy_worker_is_found_soon(ol: Outlast) -> None:
    """R020, R037: a queue that keeps a worker busy is asked from where the last batch began, and
    from its head often enough: an urgent job does not wait for the line to end."""
    order: list[int] = []

    @ol.task
    async def note(n: int) -> None:
        order.append(n)
        await asyncio.sleep(0.01)

    number = 1500
    await ol.aenqueue(*(note.job(n) for n in range(number)))
    spy = Spy(ol)
    async with work(ol, concurrency=4):
        await aeventually(lambda: spy.counts["claim_on"] > 3)
        await note.using(priority=50).aenqueue(-1)
        await aeventually(lambda: -1 in order)
        assert len(order) < number, "it came while there was a line"


def test_a_place_beyond_which_there_is_little_is_left_at_once() -> None:
    """R020: what stands before it is asked for with the next turn, not after a pause."""
    lookout = Poller(None, WorkerSettings())
    asked = ClaimRequest("w", "q", 1, 9.0, cursor=ClaimCursor(0, 0.0, "a"))
    lookout.claimed(asked, [])
    assert (lookout.next_queues(), lookout.cursor("q")) == (("q",), None)
    lookout.claimed(replace(asked, cursor=None), [])
    assert lookout.next_queues() == ()


@pytest.mark.kinds("sqlite")
def test_a_claim_that_took_long_goes_on_from_its_place_for_longer(ol: Outlast) -> None:
    """R015, R088: from its head, a queue is walked over all that an old snapshot keeps of the jobs
    that are done; that may not take a large part of a busy worker's time."""
    lookout = Poller(None, WorkerSettings())
    taken = put_and_take(ol.store.run)
    wanted = ClaimRequest("w", "default", 1, 9.0)
    lookout.claimed(wanted, [taken], took=0.001)
    eventually(lambda: lookout.cursor("default") is None, timeout=1)
    began = time.monotonic()
    lookout.claimed(wanted, [taken], took=0.05)
    eventually(lambda: lookout.cursor("default") is None)
    assert time.monotonic() - began >= 1.0


@pytest.mark.kinds("postgres")
async def test_a_look_that_took_long_is_made_less_often(ol: Outlast, database: Database) -> None:
    """R015, R088: so is a look at all queues, while one keeps the worker busy."""
    lookout = Poller(None, WorkerSettings())
    lookout.notify("default")
    put(ol.store.run)
    for _ in range(2):  # the first one opens the connection
        await lookout.poll(ol.store)
    assert lookout.wait() < 0.5
    with pytest.raises(StoreBusy):
        Spy(ol).refuse("poll", StoreBusy(reason="for this test"))
        await lookout.poll(ol.store)
    assert lookout.wait() > 0.05, "nor is one that failed made again at once"
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE job")
        look = asyncio.create_task(lookout.poll(ol.store))
        await aeventually(lambda: bool(sql(database, "SELECT 1 FROM pg_locks WHERE NOT granted")))
        await asyncio.sleep(0.05)  # it takes at least so long
    await look
    assert lookout.wait() > 0.5
