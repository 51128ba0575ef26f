"""What operators do while workers work: reclaim a job, drain a worker, remove what has ended."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from outlast import Context, InvalidOption, JobNotFound, Outlast, Permanent, TooLate, chain
from outlast.client.verb_arguments import actor
from outlast.model.errors import WorkerNotFound
from outlast.model.worker_names import remote_id
from tests.support import Database, aeventually

from .working import ended, sql, started, work


def recorded(database: Database, kind: str) -> list[dict[str, object]]:
    """What is on record of one kind that is no single job's."""
    text = "SELECT CAST(data AS text) FROM {event} WHERE kind = ? AND job IS NULL ORDER BY seq"
    return [json.loads(data) for (data,) in sql(database, text, kind)]


async def test_a_job_is_taken_from_a_worker_that_lives(ol: Outlast) -> None:
    """R200: its handler hangs; it is stopped, the job begins anew at once and unspent, and its
    neighbours go on. On record; doing it to a queued job changes nothing."""
    stopped: list[int] = []

    @ol.task(max_attempts=1, max_crashes=1)
    async def hang(ctx: Context) -> int:
        if ctx.fence == 1:
            try:
                await asyncio.sleep(600)
            finally:
                stopped.append(ctx.fence)
        return ctx.fence

    @ol.task
    async def busy(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    job = await hang.aenqueue()
    async with work(ol, concurrency=4):
        await started(ol, job)
        others = [await busy.aenqueue(n) for n in range(50)]
        again = await ol.areclaim(job.id)
        assert again.state == "ready" and again.attempt == 0
        done = await ended(ol, job)
        assert (done.state, done.result, done.attempt, done.crashes) == ("succeeded", 2, 1, 0)
        assert stopped == [1]
        for number, other in enumerate(others):
            assert await ol.aresult(other.id, timeout=20) == number
    _, events = await ol.ahistory(job.id)
    (told,) = [event.data for event in events if event.kind == "reclaim"]
    assert told["by"] == actor() and told["attempt"] == 1
    with pytest.raises(TooLate):
        await ol.areclaim(job.id)
    with pytest.raises(JobNotFound):
        ol.reclaim("0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
    queued = await busy.aenqueue(1)
    assert ol.reclaim(queued.id) == await ol.ajob(queued.id)


async def test_a_job_that_was_asked_to_stop_ends_when_it_is_taken_away(ol: Outlast) -> None:
    """R200: its handler does not listen."""
    gate = threading.Event()

    @ol.task
    def deaf() -> None:
        gate.wait(30)

    job = await deaf.aenqueue()
    async with work(ol, cancel_grace=60.0):
        await started(ol, job)
        assert (await ol.acancel(job.id)).state == "running"
        assert (await ol.areclaim(job.id)).state == "cancelled"
        gate.set()
    assert (await ol.ajob(job.id)).state == "cancelled", "what it did after that counts for nothing"


async def test_a_drained_worker_ends_what_it_has_and_takes_no_more(
    ol: Outlast, database: Database
) -> None:
    """R200: it stays, and claims again when that is taken back; the other one works on. On record
    once, however often it is said."""
    gate = asyncio.Event()
    ran: list[tuple[str, str]] = []

    @ol.task
    async def long(ctx: Context) -> None:
        ran.append(("long", str(ctx.job.worker)))
        await gate.wait()

    @ol.task
    async def short(ctx: Context) -> None:
        ran.append(("short", str(ctx.job.worker)))

    first = await long.aenqueue()
    async with work(ol, concurrency=2) as drained:
        await started(ol, first)
        await ol.adrain(drained.id)
        ol.drain(drained.id)
        await aeventually(lambda: drained.state == "draining")
        later = await short.aenqueue()
        async with work(ol, concurrency=2) as other:
            assert (await ended(ol, later)).state == "succeeded"
            assert ran[-1] == ("short", other.id)
        kept = await short.aenqueue()
        assert (await ol.aexplain(kept.id)).startswith("All live workers that serve 'default' are")
        gate.set()
        assert (await ended(ol, first)).state == "succeeded"
        assert (await ol.ajob(kept.id)).state == "ready"
        await ol.adrain(drained.id, undo=True)
        assert (await ended(ol, kept)).state == "succeeded"
        assert ran[-1] == ("short", drained.id) and drained.state == "working"
    assert recorded(database, "drain") == [{"by": actor(), "worker": drained.id}]
    assert recorded(database, "undrain") == [{"by": actor(), "worker": drained.id}]
    with pytest.raises(WorkerNotFound):
        ol.drain("nobody")
    with pytest.raises(InvalidOption, match="remote"):
        ol.drain(remote_id("token", "afar"))


async def test_what_has_ended_is_removed_when_somebody_says_so(
    ol: Outlast, database: Database
) -> None:
    """R200: those that fit, with all that belongs to them, while a worker works; on record."""

    @ol.task
    async def die(n: int, ctx: Context) -> None:
        ctx.log("last words")
        raise Permanent("no way")

    @ol.task
    async def live(n: int) -> int:
        return n

    async with work(ol):
        dead = [await die.using(queue=f"q{n % 2}").aenqueue(n) for n in range(10)]
        good = await live.aenqueue(1)
        for job in (*dead, good):
            await ended(ol, job)
        assert await ol.apurge(queue="q0", older=3600) == 0, "none is that old"
        assert await ol.apurge(queue="q0") == 5
        assert await ol.apurge(queue="q0") == 0
        assert ol.purge(task="live") == 0, "that one is not dead"
    left = [job.id for job in ol.jobs(state="dead")]
    assert sorted(left) == sorted(job.id for job in dead if job.queue == "q1")
    for table in ("attempt", "event"):
        rows = sql(database, f"SELECT DISTINCT CAST(job AS text) FROM {{{table}}}")
        kept = {id for (id,) in rows if id is not None}
        assert kept <= {*left, good.id} and kept >= set(left), table
    (told,) = recorded(database, "purge")
    assert told == {"by": actor(), "number": 5, "state": "dead", "queue": "q0", "task": None,
                    "tenant": None}  # fmt: skip
    assert ol.purge(state="succeeded") == 1
    with pytest.raises(InvalidOption, match="state"):
        ol.purge(state="running")


def test_a_purge_leaves_what_a_flow_still_needs(ol: Outlast) -> None:
    """R200: what came before a job that is still to end stays; a dead flow goes as a whole."""

    @ol.task
    def step(n: int) -> None: ...

    one, _, three = ol.enqueue(chain(step.job(1), step.job(2), step.job(3)))
    before = step.enqueue(4)
    ol.cancel(before.id)
    waits = step.using(after=[before.id], when="finished", delay=3600).enqueue(5)
    assert ol.purge(state="cancelled") == 0, "a job that waits needs its result"
    ol.cancel(waits.id)
    assert ol.purge(state="cancelled") == 2
    ol.cancel(one.id)
    assert ol.job(three.id).state == "dead"
    assert ol.purge(state="cancelled") == 0, "what is dead because of it may be given a new life"
    assert ol.purge(state="dead", task="step") == 2
    assert ol.purge(state="cancelled") == 1
    assert ol.counts() == dict.fromkeys(ol.counts(), 0) and ol.flows() == []
