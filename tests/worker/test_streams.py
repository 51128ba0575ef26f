"""Streamed output: from the handler to its readers, batched, in order, before the outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import Any

import pytest

from outlast import (
    BatchContext,
    Context,
    InvalidOption,
    Job,
    JobNotFound,
    Outlast,
    Retry,
    StoreSettings,
    StoreUnavailable,
    StreamChunk,
)
from outlast.model.stream import StreamCursor, chunks_after, encode_chunk
from outlast.ops.streams import stream_tail
from outlast.testing import context
from outlast.worker.steps import in_event_loop
from outlast.worker.stream_buffers import WRITE_INTERVAL_S, StreamBuffer
from tests.support import Database, aeventually

from .scripts import both_colours, handler
from .working import Spy, ended, sql, work

Script = Generator[Any, Any, Any]
TOKENS = [f"token-{n} " for n in range(400)]


async def read(ol: Outlast, job: Job, after: str | None = None) -> list[StreamChunk]:
    async with asyncio.timeout(60):
        return [chunk async for chunk in ol.stream(job.id, after=after, poll=0.02)]


def text_of(chunks: list[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


@both_colours
async def test_a_reader_gets_all_in_order_while_the_job_runs(ol: Outlast, colour: str) -> None:
    """R248: text, JSON, marks; and the reader's end is the job's."""
    go_on = threading.Event()

    def script(ctx: Context) -> Script:
        ctx.stream("Hello ")
        ctx.stream("Wörld\n\0\ud800")
        ctx.stream({"tool": "search", "n": [1, None]})
        while not go_on.is_set():
            yield pause(0.01)
        ctx.stream("end")
        return "done"

    task = handler(ol, colour, script)
    seen: list[StreamChunk] = []
    async with work(ol):
        job = await task.aenqueue()
        async with asyncio.timeout(60):
            async for chunk in ol.astream(job.id, poll=0.02):
                seen.append(chunk)
                if chunk.kind == "json":
                    go_on.set()  # the handler has not ended yet
    assert text_of(seen) == "Hello Wörld\n\\x00\\ud800end"
    assert seen[0].kind == "attempt"
    assert [chunk.data for chunk in seen if chunk.kind == "json"] == [
        {"tool": "search", "n": [1, None]}
    ]
    assert (await ol.ajob(job.id)).state == "succeeded"
    for n in range(len(seen)):  # resumed after each chunk: the rest, and nothing twice
        assert await read(ol, job, seen[n].id) == seen[n + 1 :]
    assert list(await asyncio.to_thread(lambda: list(ol.stream(job.id)))) == seen


def pause(seconds: float) -> Any:
    """A handler's own time passes, in either colour."""
    return asyncio.sleep(seconds) if in_event_loop() else threading.Event().wait(seconds)


@both_colours
async def test_however_often_a_handler_streams_it_writes_twenty_times_a_second(
    ol: Outlast, database: Database, colour: str
) -> None:
    """R248: counted as rows; all tokens arrive."""

    def script(ctx: Context) -> Script:
        for token in TOKENS:
            ctx.stream(token)
            yield pause(0.001)

    task, spy = handler(ol, colour, script), Spy(ol)
    async with work(ol):
        job = await task.aenqueue()
        assert text_of(await read(ol, job)) == "".join(TOKENS)
    times = spy.times("store_stream")
    [(rows,)] = sql(database, "SELECT count(*) FROM {stream}")  # a write is a row
    # One at once, one for each twentieth of a second, and the last one with the outcome.
    allowed = 2 + (times[-1] - times[0]) * 20
    assert 3 < rows <= allowed < len(TOKENS)


async def test_jobs_that_stream_nothing_write_nothing(ol: Outlast, database: Database) -> None:
    """R248: no statement, no row, and no writer."""

    @ol.task
    async def quiet(ctx: Context) -> None:
        ctx.log("only a line")

    spy = Spy(ol)
    async with work(ol) as worker:
        await ended(ol, await quiet.aenqueue())
        assert worker.sink._streams is None  # type: ignore[attr-defined]
    assert spy.counts["store_stream"] == 0
    assert sql(database, "SELECT count(*) FROM {stream}") == [(0,)]


async def test_output_is_stored_before_the_outcome_and_in_a_completion(ol: Outlast) -> None:
    """R248: whoever sees the job ended can read all of it; also if it completes itself."""

    @ol.task
    async def completes(ctx: Context) -> None:
        ctx.stream("a")
        await asyncio.sleep(WRITE_INTERVAL_S / 5)
        ctx.stream("b")
        async with ctx.completing("done"):
            ctx.stream("c")

    @ol.task(retry=Retry(max_attempts=1))
    def fails(ctx: Context) -> None:
        ctx.stream("0")
        while not ol.store.run(stream_tail, ctx.job.id):
            threading.Event().wait(0.001)
        for n in range(1, 100):  # no write is due for a while
            ctx.stream(str(n % 10))
        raise RuntimeError("after all that")

    async with work(ol):
        jobs = [await completes.aenqueue(), await fails.aenqueue()]
        for job, expected in zip(jobs, ["abc", "0123456789" * 10], strict=True):
            await ended(ol, job)
            assert text_of(await read(ol, job)) == expected


@both_colours
async def test_output_is_stored_with_each_step(
    ol: Outlast, database: Database, colour: str
) -> None:
    """R248, R105: all that was streamed so far, by the time that a step returns; in the order in
    which it was streamed, each chunk once, and the job's limit counts each once."""
    stored: list[str] = []

    def talk(ctx: Context, n: int) -> int:
        ctx.stream(f"in {n} ")
        return n

    def script(ctx: Context) -> Script:
        for n in range(20):
            ctx.stream(f"before {n} ")
            yield ctx.step(f"step {n}", talk, ctx, n)
            rows = ol.store.run(stream_tail, ctx.job.id)
            stored.append("".join(chunk.text for chunk in chunks_after(StreamCursor(), rows)))
        ctx.stream("end")

    task = handler(ol, colour, script)
    async with work(ol):
        job = await task.aenqueue()
        chunks = await read(ol, job)
    said = [f"before {n} in {n} " for n in range(20)]
    assert stored == ["".join(said[: n + 1]) for n in range(20)]
    assert text_of(chunks) == "".join(said) + "end"
    sizes = "SELECT total, length(CAST(data AS text)) FROM {stream} ORDER BY n"
    total = 0
    for counted, size in sql(database, sizes):
        total += size
        assert counted == total


async def test_chunks_gather_while_the_database_is_away(ol: Outlast, hasty: None) -> None:
    """R248: nothing is lost or repeated, and the handler goes on."""
    done = threading.Event()

    @ol.task
    def talks(ctx: Context) -> None:
        ctx.stream("first ")
        for token in TOKENS:
            ctx.stream(token)
            threading.Event().wait(0.001)
        done.set()

    spy = Spy(ol)
    spy.refuse("store_stream", StoreUnavailable(reason="away"), times=4)
    async with work(ol):
        job = await talks.aenqueue()
        assert text_of(await read(ol, job)) == "first " + "".join(TOKENS)
    assert done.is_set() and not spy.refusing("store_stream")


async def test_the_limit_of_a_job_is_a_setting(database: Database) -> None:
    """R248: what exceeds it is marked as cut off; the job does not fail for it, and a long text
    arrives whole below it."""
    settings = StoreSettings(stream_limit=300_000)
    async with Outlast(database.url, schema=database.schema, settings=settings) as ol:

        @ol.task
        async def talks(size: int, ctx: Context) -> str:
            ctx.stream("ü" * size)
            for _ in range(100):
                ctx.stream({"some": "x" * 100})
            return "done"

        async with work(ol):
            within, beyond = await talks.aenqueue(30_000), await talks.aenqueue(60_000)
            chunks = await read(ol, within)
            assert text_of(chunks) == "ü" * 30_000
            assert chunks[-1].kind == "json"
            chunks = await read(ol, beyond)
            assert [chunk.kind for chunk in chunks][-1] == "truncated"
            assert await ol.aresult(beyond.id, timeout=30) == "done"


def test_a_handler_that_streams_without_end_fills_no_memory() -> None:
    """R248: of what exceeds the limit, one chunk is taken, which the database makes a mark of."""
    limit = 100_000
    buffer = StreamBuffer(context()._claim, limit)
    for _ in range(1000):
        for item in encode_chunk("x" * 1000):
            buffer.add(item)
    taken = 0
    while buffer:
        row, _ = buffer.take()
        taken += len(row)
    assert limit < taken < limit + 2000


async def test_items_of_a_batch_stream_each_for_itself(ol: Outlast) -> None:
    """R248"""

    @ol.task(batch=10, wait=0.2)
    async def talk(names: list[str], ctx: BatchContext) -> None:
        for name, item in zip(names, ctx.items, strict=True):
            item.stream(f"I am {name}")

    jobs = [await talk.aenqueue(name) for name in ("one", "two")]
    async with work(ol):
        assert [text_of(await read(ol, job)) for job in jobs] == ["I am one", "I am two"]


async def test_bad_chunks_and_positions_are_refused(ol: Outlast) -> None:
    """R248: with a reason; nothing of them is stored."""
    ctx = context()
    ctx.stream("fine")
    ctx.stream("")
    ctx.stream({"a": 1})
    for bad in (object(), float("nan"), {"a": "\0"}, {"a": "x" * 40_000}):
        with pytest.raises(InvalidOption, match="stream"):
            ctx.stream(bad)
    assert ctx.streamed == ["fine", {"a": 1}]
    nobody = "01900000-0000-7000-8000-000000000000"
    for after in ("", "1", "1-2", "1-2-3-4", "-1-0-0", "x"):
        with pytest.raises(InvalidOption, match="id of a chunk"):
            ol.stream(nobody, after=after)
    with pytest.raises(JobNotFound):
        next(ol.stream(nobody))


async def test_a_reader_hears_of_a_new_attempt_before_it_streams(ol: Outlast) -> None:
    """R248: also of one that has nothing to stream yet."""
    go_on = threading.Event()

    @ol.task(retry=Retry(max_attempts=2, base=0.01))
    async def talks(ctx: Context) -> None:
        if ctx.attempt == 1:
            ctx.stream("one")
            raise RuntimeError
        await aeventually(go_on.is_set)

    async with work(ol):
        job = await talks.aenqueue()
        told: list[tuple[str, int]] = []
        async with asyncio.timeout(60):
            async for chunk in ol.stream(job.id, poll=0.02):
                told.append((chunk.kind, chunk.attempt))
                if told[-1] == ("attempt", 2):
                    go_on.set()
    assert told == [("attempt", 1), ("text", 1), ("attempt", 2)]
