"""The cost of a claim from lanes: beside a plain claim, with many jobs and with many lanes."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outlast.model.claim import Claim
from outlast.model.turns import FIRST_LANE
from outlast.ops.claim import ClaimRequest
from outlast.ops.enqueue import enqueue
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.lanes import LaneClaim, LaneTurn, TurnClaims
from outlast.ops.operation import Op, Rows, Statement
from outlast.store import Store
from outlast.store.postgres.connection_parameters import HOT_PATH_OPTIONS
from outlast.store.postgres.paramstyle import psycopg_text
from outlast.store.sqlite.store import SqliteStore
from outlast.worker.lane_turns import LaneTurns
from tests.store.jobs import end, ending, new, table, take
from tests.store.test_lanes import limit, put_in
from tests.store.test_plans import work_of
from tests.support import Database


@pytest.mark.kinds("sqlite")
def test_a_claim_from_many_lanes_does_little_more_than_one_from_a_plain_queue(
    store: Store,
) -> None:
    """R241: instructions of SQLite for each job, which a busy machine does not change."""
    limit(store.run, "limited", lane_running=2)
    jobs = [new(lane=f"lane-{n % 200:03}", queue="limited") for n in range(4000)]
    store.run(enqueue, [*jobs, *(new(queue="plain") for _ in range(4000))])
    steps = {}
    for queue in ("plain", "limited"):
        claims: Any = TurnClaims() if queue == "limited" else []
        with _counted_steps(store) as counted:
            for _ in range(10):
                turn_of = LaneTurn(claims.cursor) if queue == "limited" else None
                request = ClaimRequest("w1", queue, 100, 60.0, promote=False, turn=turn_of)
                ended = [ending(claim) for claim in claims]
                _, claims = store.run(finish_and_claim, ended, request)
                assert len(claims) == 100
        steps[queue] = counted[0] / 1000
    print(steps)
    assert steps["limited"] <= 1.45 * steps["plain"], steps


@contextmanager
def _counted_steps(store: Store) -> Iterator[list[int]]:
    assert isinstance(store, SqliteStore)
    counted = [0]

    def count() -> int:
        counted[0] += 10
        return 0

    store.writer.set_progress_handler(count, 10)
    yield counted
    store.writer.set_progress_handler(None, 0)


@pytest.mark.kinds("sqlite")
def test_a_statement_that_changes_many_pages_writes_no_temporary_file(
    store: Store,
) -> None:
    """R241: the pages that 100 jobs of 100 lanes change are more than SQLite keeps in memory by
    itself. Its files for that have no name, so they are looked up by their descriptors."""
    limit(store.run, lane_running=2)
    store.run(enqueue, [new(lane=f"lane-{n % 200:03}-{'x' * 100}") for n in range(4000)])
    assert isinstance(store, SqliteStore)
    seen = set[str]()

    def look() -> int:
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # that of the folder itself
                seen.add(str(descriptor.readlink()))
        return 0

    cursor = FIRST_LANE
    store.writer.set_progress_handler(look, 1000)
    for _ in range(3):
        found: Any = take(store.run, 100, turn=LaneTurn(cursor))
        cursor = found.cursor
    store.writer.set_progress_handler(None, 0)
    assert seen and not [path for path in seen if "etilqs" in path]


@pytest.mark.slow
@pytest.mark.quiet  # autovacuum of a busy machine comes in between
@pytest.mark.parametrize(
    ("jobs_in_lane", "number"),
    [
        (None, 20_000),
        (10, 20_000),
        pytest.param(None, 1_000_000, marks=[pytest.mark.campaign, pytest.mark.timeout(1800)]),
        pytest.param(10, 1_000_000, marks=[pytest.mark.campaign, pytest.mark.timeout(1800)]),
    ],
    ids=["lane", "lanes", "lane-1M", "lanes-1M"],
)
def test_a_claim_is_as_fast_with_a_million_waiting(
    store: Store, database: Database, jobs_in_lane: int | None, number: int
) -> None:
    """R241: finish 100 and claim 100, with few waiting and with many, in one lane or in
    lanes of ten: what the database does for it, and how long that takes."""
    limit(store.run, lane_running=1000 if jobs_in_lane is None else 2)
    took, few = [], max(10_000, number // 50)
    for first, last in ((0, few), (few, number)):
        _wait_in_lanes(database, first, last, (last - first) // jobs_in_lane if jobs_in_lane else 1)
        took.append(_claim_cost(store, database))
    (few_s, few), (many_s, many) = took
    print(f"{1000 * few_s:.1f} ms, then {1000 * many_s:.1f} ms; {few:.0f}, then {many:.0f} steps")
    assert many <= 1.5 * few, took


def _wait_in_lanes(database: Database, first: int, last: int, number_of_lanes: int) -> None:
    columns = "id, tenant, queue, lane, task, args, priority, max_attempts, max_crashes, state"
    serial, source = "", f"generate_series({first}, {last - 1}) AS n"
    id, now = "CAST('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid)", "now()"
    if database.is_sqlite:
        step = f"SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last - 1}"
        serial, source = f"WITH RECURSIVE s(n) AS ({step})", "s"
        id, now = "printf('00000000-0000-7000-8000-%012x', n)", "strftime('%s') + 0.0"
    name = table(database, "job")
    with database.connect() as connection:
        connection.execute(
            f"INSERT INTO {name} ({columns}, run_at, created_at) {serial} SELECT {id}, 'default',"
            f" 'default', 'lane-' || (n % {number_of_lanes}), 'work', '{{}}', 0, 3, 3, 'ready',"
            f" {now}, {now} FROM {source}"
        )
        connection.execute(f"ANALYZE {name}")


def _claim_cost(store: Store, database: Database) -> tuple[float, int]:
    """Of a worker's turns, each of which finishes what the last one claimed: the median of their
    seconds, and what the statements of the next one do."""
    steady, took, claims = store.hot_path_clone(), list[float](), TurnClaims()
    for _ in range(30):
        ended = [ending(claim) for claim in claims]
        request = _request(claims)
        began = time.perf_counter()
        _, found = steady.run(finish_and_claim, ended, request)
        took.append(time.perf_counter() - began)
        assert isinstance(found, TurnClaims) and len(found) == 100
        claims = found
    for claim in claims:
        end(store.run, claim)
    if steady is not store:
        steady.close()
    asked = _request(claims).by_lanes()
    shares = {lane: 2 for lane, *_ in store.run(_lock, asked)}
    given = {**asked.params, "queue": "default", "limit": 100, "alone": True}
    claim = Statement("claim_lanes", {**given, "shares": json.dumps(shares)})
    work = sum(work_of(store, database, one) for one in (asked.opening()[-1], claim))
    return statistics.median(took[5:]), work


def _request(claims: TurnClaims) -> ClaimRequest:
    turn_of = LaneTurn(claims.cursor, even=claims.even)
    return ClaimRequest("w1", "default", 100, 60.0, promote=False, turn=turn_of)


def _lock(asked: LaneClaim) -> Op[Rows]:
    rows: Rows = yield asked.opening()[-1]
    return rows


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("number_of_lanes", [1, 100])
def test_an_old_snapshot_does_not_slow_the_search_for_lanes(
    store: Store, database: Database, number_of_lanes: int
) -> None:
    """R241: the pages that a claim of 100 jobs reads to find lanes, after 200 and 4,000 jobs. What
    it reads to claim from them grows: see the how-to about limits."""
    limit(store.run, lane_running=1000 if number_of_lanes == 1 else 2)
    _wait_in_lanes(database, 0, 6000, number_of_lanes)
    turns, steady, pages = LaneTurns(), store.hot_path_clone(), list[tuple[int, int]]()
    turns.update(["default"], ["default"])
    claims = list[Claim]()
    with psycopg.connect(database.direct_url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM pg_class").fetchone()
        for number in range(43):
            if number in (2, 42):
                store.run(finish_and_claim, [ending(claim) for claim in claims])
                claims = []
                pages.append(_pages(store, database, _request_of_worker(turns)))
            request = _request_of_worker(turns)
            _, claims = steady.run(finish_and_claim, [ending(one) for one in claims], request)
            assert request.turn is not None
            turns.claimed("default", claims, request.turn.longest_due)
            assert len(claims) == 100
        old.rollback()
    steady.close()
    print(f"{number_of_lanes} lanes, pages of (search, claim): {pages}")
    (first, _), (last, _) = pages
    assert last <= 1.5 * first


def _request_of_worker(turns: LaneTurns) -> ClaimRequest:
    given = turns.next("default")
    assert given is not None
    turn = replace(given, adopt=False, first=False)
    return ClaimRequest("w1", "default", 100, 60.0, promote=False, turn=turn)


def _pages(store: Store, database: Database, request: ClaimRequest) -> tuple[int, int]:
    """What a claim in one round trip reads, on the hot path: to lock lanes, and to claim from them.
    It is undone afterwards."""
    read = []
    with psycopg.connect(
        database.direct_url, cursor_factory=psycopg.ClientCursor, options=HOT_PATH_OPTIONS
    ) as connection:
        connection.execute("SET jit = off")
        lock, claim = request.by_lanes().even_statements()
        connection.execute(psycopg_text(store.queries[lock.name]), lock.bind)
        for statement in (lock, claim):
            text = psycopg_text(store.queries[statement.name])
            [([explained],)] = connection.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", statement.bind
            ).fetchall()
            plan = explained["Plan"]
            read.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        connection.rollback()
    return read[0], read[1]


@pytest.mark.parametrize(
    "number",
    [5000, pytest.param(100_000, marks=[pytest.mark.campaign, pytest.mark.timeout(900)])],
)
def test_a_whale_delays_minnows_by_its_turns_alone(
    store: Store, database: Database, number: int
) -> None:
    """R146, R239: ten minnows with ten jobs each, in the claims of a worker of ten slots."""
    limit(store.run, lane_running=10)
    limit(store.run, "alone", lane_running=10)
    _wait_in_lanes(database, 0, number, 1)
    needed = {}
    for queue in ("alone", "default"):
        for minnow in range(10):
            put_in(store.run, f"minnow-{minnow}", 10, queue=queue)
        needed[queue] = _claims_until_minnows_are_done(store, queue)
    print(f"{needed} claims")
    assert needed["default"] <= 2 * needed["alone"], needed


def _claims_until_minnows_are_done(store: Store, queue: str) -> int:
    turns, claims, done = LaneTurns(), list[Claim](), 0
    turns.update([queue], [queue])
    for number in range(1, 1000):
        turn_of = turns.next(queue, claims)
        request = ClaimRequest("w1", queue, 10, 60.0, turn=turn_of)
        _, claims = store.run(finish_and_claim, [ending(claim) for claim in claims], request)
        turns.claimed(queue, claims, bool(turn_of and turn_of.longest_due))
        done += sum(str(claim.lane).startswith("minnow") for claim in claims)
        if done == 100:
            return number
    raise AssertionError(f"only {done} of 100 jobs were claimed")
