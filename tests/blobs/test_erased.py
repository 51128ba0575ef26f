"""Results that are erased as they are read: one reader gets each."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from outlast import Context, Erased, JobDead, Outlast, Retry, TooEarly, chain
from outlast.ops.erase import take_result
from tests.support import Database
from tests.worker.working import ended, sql, work

from .keeping import LARGE, Shelf, files

ONCE = Retry(max_attempts=1)


async def test_the_first_reader_gets_it_and_nothing_is_left(
    ol: Outlast, folder: Path, database: Database
) -> None:
    """R165: what it was given, gave and said; how it ended, and who read it, stays."""

    @ol.task
    async def gives(secret: str, ctx: Context) -> str:
        ctx.log(f"about {secret}")
        await ctx.step("one", lambda: f"step {secret}")
        return f"for {secret} " + LARGE

    job = await gives.aenqueue("me-alone " + LARGE)
    async with work(ol):
        given = await ol.aresult(job.id, timeout=20, erase=True)
    assert given.startswith("for me-alone")
    now = ol.job(job.id)
    assert (now.state, now.args, now.result, now.attempt) == ("succeeded", None, None, 1)
    assert now.forgotten and files(folder) == []
    for table in ("job", "event", "attempt", "step"):
        assert "me-alone" not in repr(sql(database, f"SELECT * FROM {{{table}}}"))
    [told] = [event.data for event in ol.history(job.id)[1] if event.kind == "forget"]
    assert told["read"] is True
    for again in (ol.aresult(job.id), ol.aresult(job.id, erase=True)):
        with pytest.raises(Erased, match="was erased by") as refused:
            await again
        assert refused.value.facts["job"] == job.id
        assert refused.value.facts["by"] == told["by"]
    with pytest.raises(Erased):
        ol.result(job.id, erase=True)


async def test_nothing_and_what_was_forgotten_are_told_apart(ol: Outlast) -> None:
    """R165: a job may give None, which is erased like any other; a forgotten one gives no None."""

    @ol.task
    async def gives(n: int) -> int | None:
        return n or None

    nothing, something = await ol.aenqueue(gives.job(0), gives.job(1))
    async with work(ol):
        assert await ol.aresult(nothing.id, timeout=20) is None
        assert await ol.aresult(nothing.id, erase=True) is None
        assert await ol.aresult(something.id, timeout=20) == 1
    with pytest.raises(Erased):
        ol.result(nothing.id)
    ol.forget(something.id)
    with pytest.raises(Erased):
        ol.result(something.id)


async def test_of_many_readers_one_gets_it(ol: Outlast, database: Database) -> None:
    """R165: threads of one process, and another one."""

    @ol.task
    async def gives() -> str:
        return LARGE

    jobs = ol.enqueue(*(gives.job() for _ in range(5)))
    async with work(ol):
        for job in jobs:
            await ol.aresult(job.id, timeout=20)
    other = Outlast(database.url, schema=database.schema, blobs=ol.blobs and ol.blobs.location)
    got: list[str] = []
    others: list[str] = []
    start = threading.Barrier(4)

    def read(reader: Outlast) -> None:
        for job in jobs:
            start.wait()
            try:
                assert reader.result(job.id, timeout=10, erase=True) == LARGE
                got.append(job.id)
            except Exception as error:
                others.append(type(error).__name__)

    threads = [threading.Thread(target=read, args=(one,)) for one in (ol, ol, other, other)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    other.close()
    assert sorted(got) == sorted(job.id for job in jobs)
    assert others == ["Erased"] * (3 * len(jobs))


async def test_what_a_flow_still_needs_is_not_erased(ol: Outlast) -> None:
    """R165, R084: neither while jobs after it are to run, nor while a dead one may be redriven."""
    wrong = [True]

    @ol.task
    async def first() -> str:
        return LARGE

    @ol.task(retry=ONCE)
    async def second(ctx: Context) -> int:
        if wrong:
            raise ValueError(wrong.pop())
        return sum([len(one) async for one in ctx.results()])

    one, two = ol.enqueue(chain(first.job(), second.using(delay=3600).job()))
    async with work(ol):
        assert await ol.aresult(one.id, timeout=20) == LARGE
        with pytest.raises(TooEarly, match="jobs of its flow"):
            await ol.aresult(one.id, erase=True)
        assert ol.job(one.id).result == LARGE
        ol.cancel(two.id)
        ol.retry(two.id)
        assert (await ended(ol, two)).state == "dead"
        with pytest.raises(TooEarly, match="jobs of its flow"):
            await ol.aresult(one.id, erase=True)
        ol.retry(two.id)
        assert await ol.aresult(two.id, timeout=20) == len(LARGE)
        assert await ol.aresult(one.id, erase=True) == LARGE


async def test_a_job_without_a_result_keeps_what_it_says(ol: Outlast) -> None:
    """R165: its error is why somebody asks."""

    @ol.task(retry=ONCE)
    async def fails(n: int) -> None:
        raise ValueError("no")

    job = await fails.aenqueue(1)
    async with work(ol):
        with pytest.raises(JobDead, match="no"):
            await ol.aresult(job.id, timeout=20, erase=True)
    assert ol.job(job.id).args == {"n": 1}


async def test_an_erasure_whose_answer_got_lost_is_one(ol: Outlast) -> None:
    """R165, R012: said again under its own name it is done; under another it is refused."""

    @ol.task
    async def gives() -> str:
        return LARGE

    job = await gives.aenqueue()
    with pytest.raises(TooEarly):
        ol.store.run(take_result, job.id, "me", "first")
    async with work(ol):
        await ol.aresult(job.id, timeout=20)
    assert len(ol.store.run(take_result, job.id, "me", "first")) == 1
    assert ol.store.run(take_result, job.id, "me", "first") == ()
    with pytest.raises(Erased):
        ol.store.run(take_result, job.id, "me", "second")


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_who_comes_second_is_told_so_even_between_the_row_and_the_blob(
    shelved: Outlast, without: Outlast, database: Database, kind: str
) -> None:
    """R165: the blob is gone because somebody else has read it, and is not lost."""

    @shelved.task
    async def gives() -> str:
        return LARGE

    class Snatched(Shelf):
        """Somebody is always faster."""

        faster: Shelf

        def get(self, name: str) -> bytes | None:
            with Outlast(database.url, blobs=self.faster) as other:
                assert other.result(job.id, erase=True) == LARGE
            return super().get(name)

    assert shelved.blobs is not None
    snatched = shelved.blobs.location = Snatched()
    snatched.faster = Shelf()
    snatched.faster.things = snatched.things
    job = await gives.aenqueue()
    async with work(shelved):
        await ended(without, job)  # which looks at no blob
    with pytest.raises(Erased):
        if kind == "sync":
            shelved.result(job.id, erase=True)
        else:
            await shelved.aresult(job.id, erase=True)
