"""What a job costs the database, counted and not timed: a machine may be as busy as it likes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from outlast.ops.claim import ClaimCursor, ClaimRequest
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.offer import OfferRequest
from outlast.ops.operation import Pipeline, Statement
from outlast.store import Store, open_store
from outlast.store.postgres.paramstyle import psycopg_text
from outlast.store.postgres.session import PLAN_BY_KEYS, fuse
from outlast.store.postgres.store import PostgresStore
from tests.store.jobs import ending, new, put, take
from tests.support import Database

# What is written and planned depends on what a table held before.
pytestmark = [pytest.mark.kinds("postgres"), pytest.mark.fresh]

BATCH = 100


def wanted(**said: Any) -> ClaimRequest:
    return ClaimRequest("w1", "default", BATCH, 60.0, promote=False, **said)


def in_a_batch(store: Store) -> list[Statement]:
    """What a batch of jobs is inserted, claimed and finished with; each is done in turn."""
    return [
        Statement("insert_jobs", rows=[new(args='{"n": 1}').row() for _ in range(BATCH)]),
        wanted().statements()[-1],
        Statement("succeed", {"owner": "w1"}, _ends(store)),
    ]


def _ends(store: Store) -> Sequence[dict[str, Any]]:
    held = take(store.run, BATCH)
    return [{"id": one.id, "fence": one.fence, "result": "null"} for one in held]


def test_a_job_writes_no_more_than_it_did(store: Store, database: Database) -> None:
    """R180: what goes to the write-ahead log for a job, for its whole life. Each index is some."""
    put(store.run, 2 * BATCH)
    written = [_logged(store, database, statement) for statement in in_a_batch(store)]
    inserted, claimed, finished = (records / BATCH for records, _ in written)
    assert inserted <= 4.5, "a row, its key, and its place among the ready"
    assert claimed <= 5.5, "a lock, a row, its key, its lease"
    assert finished <= 4.5, "a row, its key, and its place among the ended"
    assert sum(bytes for _, bytes in written) / BATCH <= 1400


def test_one_job_alone_writes_no_more_than_it_did(store: Store, database: Database) -> None:
    """R180: a job that is enqueued by itself, without the record of its commit."""
    put(store.run, 2 * BATCH)
    records, bytes = _logged(store, database, Statement("insert_job", new().params()))
    assert records <= 4, "a row, its key, and its place among the ready"
    assert bytes <= 430


def test_a_turn_is_one_round_trip_and_prepared_once(database: Database) -> None:
    """R036: what a worker says over and over is parsed and planned once for each connection."""
    store = open_store(database.url, database.schema)
    put(store.run, 6 * BATCH)
    steady = store.hot_path_clone()
    assert isinstance(steady, PostgresStore)
    held = steady.run(finish_and_claim, [], wanted())[1]
    for place in (None, None, _place(held[0]), _place(held[0])):
        held = steady.run(finish_and_claim, [ending(one) for one in held], wanted(cursor=place))[1]
    with steady._pool.acquire() as link:
        rows = link.execute(
            "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"
        ).fetchall()
    plans = {
        ("state = 'succeeded'" in text, "state = 'running', attempt" in text): used
        for text, *used in rows
    }
    gives_back, takes = (True, False), (False, True)
    assert plans == {takes: [3, 0], gives_back: [2, 0], (True, True): [2, 0]}
    steady.close()
    store.close()


def test_a_plan_that_is_kept_does_not_depend_on_when_it_was_made(database: Database) -> None:
    """R036: made while the tables were empty and nobody had analysed them, it goes by the indexes
    all the same."""
    store = open_store(database.url, database.schema)
    steady = store.hot_path_clone()
    assert isinstance(steady, PostgresStore)
    steady.ready()
    ids = {"id": new().id, "state": "succeeded", "fence": 1}
    place = ClaimCursor(0, 0.0, ids["id"])
    succeed = Statement("succeed", {"owner": "w1"}, [{**ids, "result": "null"}])
    asked = OfferRequest("d", "default", BATCH, 60.0, promote=False, tasks=("t",))
    claim = {"job": ids["id"], "worker": "w1", "offered_by": None, "fence": 1}
    wait = {"job": ids["id"], "name": "go", "names": '["go"]'}
    taking = ("hold_claim", "record_taken", "take_signal", "end_by_signal")
    with steady._pool.acquire() as link:
        for statement in (
            wanted().statements()[-1],
            wanted(cursor=place).statements()[-1],
            Statement("promote_due", {"limit": 9}),
            Statement("notify_followers", rows=[ids]),
            succeed,
            succeed._replace(name="succeed_tied"),
            _fused(succeed, *wanted(cursor=place).statements()),
            *asked.statements(),
            *replace(asked, cursor=place).statements(),
            Statement("hold_claims", {"lease": 9.0}, [{**ids, "worker": "r"}]),
            Statement("kept_waits", {"job": ids["id"], "name": None}),
            Statement("first_signal", wait),
            _fused(*(Statement(name, {**claim, **wait, "data": "{}"}) for name in taking)),
        ):
            _assert_by_indexes(_kept_plan(link, steady, statement))
    sent = {"job": ids["id"], "name": "go", "value": "1", "key": "k", "by": "b", "data": "{}"}
    with store._pool.acquire() as link, link.transaction():
        link.execute(PLAN_BY_KEYS[0])
        statement = Statement("send_signal", {**sent, "channel": store.channel})
        _assert_by_indexes(_kept_plan(link, store, statement))
    steady.close()
    store.close()


def test_an_old_snapshot_does_not_make_claims_walk_over_the_dead(database: Database) -> None:
    """R036, R180: whoever goes on where the last batch began reads as much as at first, while the
    entries of all that was taken since then pile up at the head."""
    store = open_store(database.url, database.schema)
    put(store.run, 5000, args=f'{{"n": "{"x" * 1500}"}}')  # few to a page, which is what is counted
    with psycopg.connect(database.direct_url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM pg_class").fetchone()
        held = store.run(finish_and_claim, [], wanted())[1]
        at_first = _buffers(store, database, wanted(cursor=_place(held[0])).statements()[-1])
        for _ in range(40):
            asked = wanted(cursor=_place(held[0]))
            held = store.run(finish_and_claim, [ending(one) for one in held], asked)[1]
            assert len(held) == BATCH
        in_the_end = _buffers(store, database, wanted(cursor=_place(held[0])).statements()[-1])
        from_the_head = _buffers(store, database, wanted().statements()[-1])
        old.rollback()
    assert in_the_end <= 1.2 * at_first
    assert from_the_head > 1.5 * in_the_end, "else this shows nothing"
    store.close()


def _fused(*statements: Statement) -> Statement:
    found = fuse(Pipeline(statements))
    assert found is not None
    return found[0]


def _assert_by_indexes(plan: str) -> None:
    tables = "job|edge|wait|signal"
    assert not re.search(rf"Seq Scan on ({tables})\b|Hash Join|Merge Join", plan), plan
    scans = re.findall(rf"Index (?:Only )?Scan using (?:{tables})_.*\n(.*)", plan)
    assert scans and all("Index Cond" in after for after in scans), plan


def _place(claim: Any) -> ClaimCursor:
    return ClaimCursor(claim.priority, claim.run_at, claim.id)


def _logged(store: Store, database: Database, statement: Statement) -> tuple[int, int]:
    """Records and bytes. Whole pages, written when one is first touched after a checkpoint, are
    there only the first time."""
    tries = [_explained(store, database, statement) for _ in range(3)]
    said = [re.findall(r"WAL: records=(\d+)(?: fpi=\d+)? bytes=(\d+)", plan)[0] for plan in tries]
    return min((int(records), int(bytes)) for records, bytes in said)


def _buffers(store: Store, database: Database, statement: Statement) -> int:
    plan = _explained(store, database, statement)
    first = next(line for line in plan.splitlines() if "Buffers" in line)
    return sum(int(number) for number in re.findall(r"(?:hit|read)=(\d+)", first))


def _explained(store: Store, database: Database, statement: Statement) -> str:
    """What a statement does, seen in a transaction that is taken back."""
    with psycopg.connect(database.direct_url, cursor_factory=psycopg.ClientCursor) as connection:
        text = psycopg_text(store.queries[statement.name])
        rows = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, WAL, COSTS OFF) {text}",
                                  statement.bind).fetchall()  # fmt: skip
        connection.rollback()
    return "\n".join(line for (line,) in rows)


def _kept_plan(link: Any, store: PostgresStore, statement: Statement) -> str:
    query = store.queries[statement.name]
    names = query.parameters
    text = query.for_driver(lambda name: f"${names.index(name) + 1}")
    link.execute(f"PREPARE kept AS {text}")
    given = ", ".join("%s" for _ in names)
    with psycopg.ClientCursor(link) as cursor:
        values = [statement.bind[name] for name in names]
        rows = cursor.execute(f"EXPLAIN (COSTS OFF) EXECUTE kept ({given})", values).fetchall()
    link.execute("DEALLOCATE kept")
    return "\n".join(line for (line,) in rows)
