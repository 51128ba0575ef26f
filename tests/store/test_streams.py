"""Streamed output in the tables: stored while a claim holds, bounded, gone with its job."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outlast.model.claim import Claim
from outlast.model.stream import StreamCursor, chunks_after
from outlast.ops import audit, erase, job_actions, retention
from outlast.ops.complete import complete
from outlast.ops.streams import PAGE_ROWS, store_stream, stream_page, stream_tail, streams_after
from outlast.store import Store, open_store
from outlast.store.caller.connection import run_on
from outlast.store.handler_connection import open_transaction
from outlast.stream_reader import StreamReader
from tests.store.conftest import Run
from tests.store.jobs import end, ending, put_and_take, table, take
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)

LIMIT = 1_000_000


def row(claim: Claim, n: int, *items: Any, first: bool = False) -> dict[str, Any]:
    data = json.dumps(list(items))
    return {"job": claim.id, **claim.guard, "n": n, "data": data, "first": first}


def write(run: Run, *rows: dict[str, Any], limit: int = LIMIT) -> int:
    return int(run(store_stream, list(rows), limit))


def read(run: Run, job: str, after: str = "0-0-0") -> list[tuple[str, int, Any]]:
    cursor = StreamCursor.parse(after)
    page = run(stream_page, job, cursor)
    return [(chunk.kind, chunk.attempt, chunk.data) for chunk in chunks_after(cursor, page.rows)]


def kept(database: Database) -> int:
    return int(database.rows(f"SELECT count(*) FROM {table(database, 'stream')}")[0][0])


def test_output_is_read_in_order_and_a_repeated_row_once(run: Run) -> None:
    """R248: rows of one claim by their numbers, however often and in whichever calls they come."""
    claim = put_and_take(run)
    assert write(run, row(claim, 3, "a", {"b": 1}), row(claim, 7, "c")) == 2
    assert write(run, row(claim, 7, "twice"), row(claim, 12, "d")) == 1
    expected = [("text", 1, "a"), ("json", 1, {"b": 1}), ("text", 1, "c"), ("text", 1, "d")]
    assert read(run, claim.id) == [("attempt", 1, None), *expected]
    assert read(run, claim.id, "1-4-1") == expected[1:]  # from the middle of a row
    assert read(run, claim.id, "1-8-1") == expected[3:]
    assert read(run, claim.id, "1-13-1") == []


@pytest.mark.parametrize("how", ["succeeded", "released", "claimed again", "another owner"])
def test_a_claim_that_does_not_hold_adds_no_output(run: Run, database: Database, how: str) -> None:
    """R248, R030: job, fence and owner are compared."""
    claim = put_and_take(run)
    write(run, row(claim, 1, "mine"))
    if how == "another owner":
        claim = claim._replace(worker="somebody else")
    else:
        end(run, claim, "succeeded" if how == "succeeded" else "released")
    if how == "claimed again":
        (other,) = take(run)
        write(run, row(other, 1, "theirs"))
    before = kept(database)
    assert write(run, row(claim, 2, "late")) == 0
    assert kept(database) == before


def test_attempts_are_kept_apart_and_marked(run: Run) -> None:
    """R248: through a retry and a redrive, which keeps the output of the attempts before."""
    claim = put_and_take(run)
    write(run, row(claim, 5, "one"))
    end(run, claim, "released")
    (again,) = take(run)
    write(run, row(again, 0, "two", first=True))
    end(run, again, "permanent")
    run(job_actions.redrive, [claim.id], "me")
    (third,) = take(run)
    write(run, row(third, 0, "three", first=True))
    told = read(run, claim.id)
    assert [data for kind, _, data in told if kind == "text"] == ["one", "two", "three"]
    assert [kind for kind, *_ in told] == ["attempt", "text"] * 3
    assert [row.fence for row in run(stream_tail, claim.id, 2)] == [2, 3]


def test_output_is_cut_off_at_the_limit_with_a_mark(run: Run, database: Database) -> None:
    """R248: the row that exceeds it becomes the mark, and nothing is stored after it."""
    claim = put_and_take(run)
    for n in range(10):
        write(run, row(claim, 2 * n, "x" * 96), row(claim, 2 * n + 1, "y" * 96), limit=1000)
    told = read(run, claim.id)
    assert told[-1] == ("truncated", 1, None)
    assert (len(told), kept(database)) == (12, 11)  # ten rows of a hundred bytes, and the mark


def test_a_repeated_row_counts_once(run: Run) -> None:
    """R248: rows that a step has stored are sent again by the worker, with later ones."""
    claim = put_and_take(run)
    rows = [row(claim, n, "x" * 96) for n in range(10)]
    for n in range(1, 11):
        assert write(run, *rows[:n], limit=1000) == 1
    assert [kind for kind, *_ in read(run, claim.id)] == ["attempt", *["text"] * 10]
    assert write(run, row(claim, 10, ""), limit=1000) == 1
    assert read(run, claim.id)[-1] == ("truncated", 1, None)


def test_a_new_attempt_removes_output_that_takes_most_of_the_limit(run: Run) -> None:
    """R248: the newest output is of more use; what takes less than half stays."""
    claim = put_and_take(run)
    write(run, row(claim, 1, "x" * 300), limit=1000)
    end(run, claim, "released")
    (second,) = take(run)
    write(run, row(second, 0, "y" * 300, first=True), limit=1000)
    assert [kind for kind, *_ in read(run, claim.id)] == ["attempt", "text"] * 2
    end(run, second, "released")
    (third,) = take(run)
    write(run, row(third, 0, "z" * 300, first=True), limit=1000)
    write(run, row(third, 0, "z" * 300, first=True), limit=1000)  # its answer was lost
    assert [data for kind, _, data in read(run, claim.id) if kind == "text"] == ["z" * 300]


def test_output_goes_with_its_job(run: Run, database: Database) -> None:
    """R063, R248: by the duty, by a purge, by an erasure, and by the audit for what they left."""
    pruned, purged, erased, gone, stays = (put_and_take(run) for _ in range(5))
    for claim in (pruned, purged, erased, gone, stays):
        write(run, row(claim, 1, "secret"))
    end(run, pruned, "cancelled")
    assert run(retention.prune, "cancelled", -1.0, 10) == 1
    end(run, purged)
    run(retention.purge, [purged.id], 0.0, "me", {})
    end(run, erased)
    run(erase.erase, erased.id, "me")
    assert kept(database) == 2
    mark = "?" if database.is_sqlite else "%s"
    database.rows(f"DELETE FROM {table(database, 'job')} WHERE id = {mark}", (gone.id,))
    assert run(audit.dangling_rows, "streams", audit.LOWEST_ID)[0] == [gone.id]
    assert run(audit.delete_dangling("streams"), [gone.id, stays.id]) == 1
    assert kept(database) == 1


def test_rows_without_a_chunk_do_not_stop_a_reader(run: Run) -> None:
    """R248: a remote worker may send what it likes; a reader goes on behind it."""
    claim = put_and_take(run)
    write(run, row(claim, 0, "first"))
    for start in range(1, 2 * PAGE_ROWS, 50):
        write(run, *(row(claim, n) for n in range(start, start + 50)))
    write(run, row(claim, 2 * PAGE_ROWS + 1, "last"))
    reader = StreamReader(None, claim.id, StreamCursor())  # type: ignore[arg-type]
    chunks: list[Any] = []
    for _ in range(4):
        look = reader.take(run(stream_page, claim.id, reader.cursor))
        chunks += [chunk.data for chunk in look.chunks if chunk.kind == "text"]
    assert (chunks, look.more) == (["first", "last"], False)


def test_many_jobs_are_read_at_once_each_from_its_position(run: Run) -> None:
    """R248: and nothing of a job that was not asked for."""
    claims = [put_and_take(run) for _ in range(3)]
    for claim in claims:
        write(run, row(claim, 1, "a"), row(claim, 2, "b"), row(claim, 3, "c"))
    asked = {claims[0].id: StreamCursor(1, 2, 1), claims[1].id: StreamCursor(1, 4, 1)}
    found = run(streams_after, asked, 10)
    assert [(job, row.n) for job, row in found] == [(claims[0].id, 3), (claims[0].id, 4)]


def test_another_tenant_finds_no_job(run: Run) -> None:
    """R248: neither its state nor its output."""
    claim = put_and_take(run)
    write(run, row(claim, 1, "mine"))
    page = run(stream_page, claim.id, StreamCursor(), "somebody else")
    assert (page.status, page.rows) == (None, [])


@pytest.mark.kinds("postgres")
def test_output_waits_for_whoever_is_taking_its_job_away(store: Store, database: Database) -> None:
    """R248, R033: between the look at the claim and the insert, the claim cannot end."""
    claim = put_and_take(store.run)
    quick = open_store(database.url, database.schema)
    quick.ready()

    async def late(transaction: Any) -> int:
        writing = asyncio.create_task(store.arun(store_stream, [row(claim, 1, "late")], LIMIT))
        await asyncio.to_thread(_waits_for_a_lock, database)
        transaction.commit()
        return int(await writing)

    with open_transaction(quick) as lent:
        run_on(lent.connection, quick, complete(ending(claim)))  # not committed yet
        stored = asyncio.run(late(lent))
    assert (stored, kept(database)) == (0, 0)
    quick.close()


def _waits_for_a_lock(database: Database) -> None:
    from tests.support import eventually

    eventually(lambda: database.rows("SELECT 1 FROM pg_locks WHERE NOT granted"))
