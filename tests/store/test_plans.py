"""What a statement costs does not depend on what lies around: 10,000 in flight, a million ended."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outlast.model.flow import group
from outlast.model.lane import QueueLimits
from outlast.model.lease_trust import BELIEVE
from outlast.ops.access import ALL_JOBS
from outlast.ops.audit import LOWEST_ID
from outlast.ops.claim import ClaimRequest
from outlast.ops.enqueue import enqueue
from outlast.ops.flow_report import prerequisites
from outlast.ops.lanes import LaneTurn
from outlast.ops.limits import declare
from outlast.ops.offer import OfferRequest
from outlast.ops.operation import Statement
from outlast.ops.report import Filter, jobs
from outlast.ops.search import JobQuery
from outlast.store import Store, open_store
from outlast.store.postgres.connection_parameters import HOT_PATH_OPTIONS
from outlast.store.postgres.paramstyle import psycopg_text
from tests.store.flowing import call, calls, lay
from tests.store.jobs import ending, new, put, table, take
from tests.support import Database
from tests.support.databases import postgres_database, sqlite_database

pytestmark = pytest.mark.timeout(600)  # a million rows take their time on a busy machine

FEW, ENDED, IN_FLIGHT = 200_000, 1_000_000, 10_000
NUMBER = 50_000  # jobs of flows that are over

CLAIM = Statement(
    "claim",
    {
        "worker": "w",
        "queue": "default",
        "limit": 10,
        "lease": 9.0,
        "tasks": "[]",
        "known": False,
        "last_life": True,
    },
)

CLAIM_ITEMS = Statement(
    "claim_items",
    {"worker": "w", "queue": "default", "task": "t", "limit": 500, "reach": 1500, "lease": 9.0},
)

CLAIM_ACROSS = ClaimRequest(
    "w", "default", 10, 9.0, promote=False, other_queues=("a", "b")
).statements()[0]
OFFER_ACROSS = OfferRequest(
    "w", "default", 10, 9.0, promote=False, other_queues=("a", "b"), tasks=("work",)
).statements()[0]

CLAIM_LONGEST_DUE = ClaimRequest(
    "w", "default", 10, 9.0, promote=False, longest_due=True
).statements()[0]


def found(name: str, **said: Any) -> Statement:
    """One of the audit's finders."""
    params = {"late": 60.0, "limit": 100, "skip": 0} | said
    return Statement(name, {k: v for k, v in params.items() if v is not None})


class Crowded:
    """A database before and after the crowd came, and what a claim took in both."""

    def __init__(self, database: Database, ended: int) -> None:
        self.database = database
        self.store = open_store(database.url, database.schema)
        put(self.store.run, 2000)
        self.alone = work_of(self.store, database, CLAIM)
        self.plan_alone = explained(self.store, database, CLAIM)
        crowd(database, "succeeded", ended)
        crowd(database, "running", IN_FLIGHT)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("sqlite", FEW), id="sqlite"),
        pytest.param(("postgres", FEW), id="postgres", marks=pytest.mark.postgres),
        pytest.param(("sqlite", ENDED), id="sqlite-full", marks=pytest.mark.campaign),
        pytest.param(
            ("postgres", ENDED),
            id="postgres-full",
            marks=[pytest.mark.campaign, pytest.mark.postgres],
        ),
    ],
)
def crowded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crowded]:
    kind, ended = request.param
    if kind == "sqlite":
        made = Crowded(sqlite_database(tmp_path_factory.mktemp("crowded")), ended)
        yield made
        made.store.close()
        return
    with postgres_database(request.getfixturevalue("postgres_server")) as database:
        made = Crowded(database, ended)
        yield made
        made.store.close()


def test_a_claim_reads_only_what_can_be_claimed(crowded: Crowded) -> None:
    """R036: the same partial index with 0 and 10,000 in flight and 200,000 ended, or (in a
    campaign) a million; at most twice the work, counted by the database itself."""
    plan = explained(crowded.store, crowded.database, CLAIM)
    assert used_indexes(crowded.plan_alone) == used_indexes(plan) >= {"job_ready"}
    assert "Seq Scan on job" not in plan and "SCAN outlast_job" not in plan
    assert 0 < work_of(crowded.store, crowded.database, CLAIM) <= 2 * crowded.alone
    analyse(crowded.database)
    plan = explained(crowded.store, crowded.database, CLAIM)
    assert used_indexes(plan) >= {"job_ready"}, plan
    assert 0 < work_of(crowded.store, crowded.database, CLAIM) <= 2 * crowded.alone


@pytest.mark.parametrize("number", [1, 100])
def test_finish_and_renew_go_through_the_primary_key(crowded: Crowded, number: int) -> None:
    """R036: never along the partial index of running rows, dead entries and all."""
    held = take(crowded.store.run, number)
    rows = [{"id": one.id, **one.guard} for one in held]
    ended = [row | {"state": str(ending(one).to)} for row, one in zip(rows, held, strict=True)]
    for statement in (
        Statement("finish", rows=ended),
        Statement("succeed", {"owner": "w1"}, rows),
        Statement("succeed_tied", {"owner": "w1"}, rows),
        Statement("renew", {"worker": "w1", "lease": 9.0}, rows),
        Statement("finished_claims", rows=rows),
    ):
        plan = explained(crowded.store, crowded.database, statement)
        assert "job_lease" not in plan, plan
        assert used_indexes(plan) & {"job_pkey", "sqlite_autoindex_outlast_job_1"}, plan


INDEX_OF_NET: list[tuple[Statement, str]] = [
    (CLAIM_ITEMS, "job_ready"),
    (CLAIM_LONGEST_DUE, "job_ready"),
    (CLAIM_ACROSS, "job_ready"),
    (OFFER_ACROSS, "job_ready"),
    (Statement("promote_due", {"limit": 100}), "job_due"),
    (Statement("signs_of_loss", {"soon": 1.0, "far": 90.0}), "job_lease"),
    (Statement("expired_leases", {"limit": 100, "skip": 0, **BELIEVE.leases}), "job_lease"),
    (Statement("expire", {"limit": 100, "skip": 0}), "job_expiry"),
    (Statement("prune_jobs", {"state": "succeeded", "keep": 9e9, "limit": 100}), "job_ended"),
    (Statement("prune_incidents", {"keep": 9e9, "limit": 100}), "event_job"),
    (
        Statement("succeeded_after", {"at": 4e9, "job": LOWEST_ID, "settle": 1.0, "limit": 9}),
        "job_ended",
    ),
    (
        Statement("started_since", {"at": 1.0, "tenant": None, "flow": None, "limit": 9}),
        "job_lease",
    ),
    (Statement("poll"), "job_ready"),
    (Statement("poll_queues", rows=[{"queue": "default"}]), "job_ready"),
    *[
        (found(name, **BELIEVE.leases), "job_lease")
        for name in ("find_owner_dead", "find_forgotten", "find_uncancelled")
    ],
    (found("find_owner_hung", since=0.0), "job_lease"),
    (found("find_endless", late=None, **BELIEVE.leases), "job_lease"),
    (found("find_ownerless", late=None), "job_lease"),
    (found("find_timer_lost"), "job_due"),
    (found("find_expired"), "job_expiry"),
    (found("find_invisible", late=None), "job_ready"),
    (found("find_invisible", late=None), "job_due"),
    (found("find_leaked_slots", state="succeeded"), "job_ended"),
    (found("find_poison", late=None), "job_dead"),
    (found("find_undecodable", late=None), "job_dead"),
]


def test_every_net_reads_its_own_index(crowded: Crowded) -> None:
    """R036, R084, R088: what runs twice a second reads no more than it heals."""
    for statement, index in INDEX_OF_NET:
        plan = explained(crowded.store, crowded.database, statement)
        # of the dead there are two, and either will do
        assert used_indexes(plan) & {index, f"{index}_at"}, (statement.name, plan)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("ended_first", "job_ended"),
        ("ended_last", "job_ended"),
        ("died_first", "job_dead_at"),
        ("died_last", "job_dead_at"),
        ("due_first", "job_due"),
        ("due_last", "job_due"),
        ("enqueued_first", "job_pkey"),
        ("enqueued_first_dead", "job_dead"),
    ],
)
def test_an_ordered_list_reads_along_an_index(crowded: Crowded, name: str, index: str) -> None:
    """R166: a page of 50 reads a window behind its cursor, and sorts no table."""
    given = {"window": 50, "at": 3.0e9, "id": LOWEST_ID, "state": None, **JobQuery().params}
    analyse(crowded.database)
    plan = explained(crowded.store, crowded.database, Statement(name, given | ALL_JOBS.params))
    assert "Seq Scan on job" not in plan and "SCAN outlast_job\n" not in plan, plan
    used = used_indexes(plan)
    # there are no dead ones, so that either of their two indexes will do
    assert used & {index, f"{index}_at", "sqlite_autoindex_outlast_job_1"}, plan


@pytest.mark.parametrize("chosen", [Filter(), Filter(state="succeeded"), Filter(state="dead")])
def test_a_page_is_as_quick_however_deep_it_lies(crowded: Crowded, chosen: Filter) -> None:
    """R166: page 1,000 of a million rows in ≤ 50 ms (generously: 150 on a busy machine)."""
    crowd_id = f"00000000-0000-7000-8000-{ENDED // 2:012x}"
    analyse(crowded.database)
    times = []
    for _ in range(7):
        began = time.perf_counter()
        crowded.store.run(jobs, chosen, crowd_id, 100)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.15


class Flowing:
    """A database with a few flows at work, and many that are over."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = open_store(database.url, database.schema)
        lay(self.store.run, *[group(*calls(3)).then(call(9)) for _ in range(100)])
        crowd(database, "succeeded", NUMBER)
        job, edge, flow = (table(database, name) for name in ("job", "edge", "flow"))
        with database.connect() as connection:
            connection.execute(f"UPDATE {job} SET flow = id, tied = true WHERE flow IS NULL")
            connection.execute(
                f"INSERT INTO {edge} (job, follower, place) SELECT id, lead(id) OVER (ORDER BY id),"
                f" 0 FROM {job} WHERE state = 'succeeded' ORDER BY id LIMIT {NUMBER - 1}"
            )
            connection.execute(
                f"INSERT INTO {flow} (id, created_at) SELECT id, created_at FROM {job}"
                " WHERE state = 'succeeded'"
            )
            for name in (job, edge, flow):
                connection.execute(f"ANALYZE {name}")
        page = self.store.run(jobs, Filter(state="waiting"), None, 1)
        self.follower, self.flow = page[0].id, page[0].flow
        self.child = self.store.run(prerequisites, self.follower, -1, 1)[0][1].id


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def flowing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flowing]:
    if request.param == "sqlite":
        made = Flowing(sqlite_database(tmp_path_factory.mktemp("flowing")))
        yield made
        made.store.close()
        return
    with postgres_database(request.getfixturevalue("postgres_server")) as database:
        made = Flowing(database)
        yield made
        made.store.close()


def test_flows_are_read_by_their_own_indexes(flowing: Flowing) -> None:
    """R036, R109: whoever ends, cancels, reads or audits a flow reads no other."""
    child = json.dumps([flowing.child])
    follower = json.dumps([flowing.follower])
    ended = [{"id": flowing.child, "state": "succeeded"}]
    flow, error = flowing.flow, '{"type": "Cancelled"}'
    by_key = ({"job_pkey"}, {"sqlite_autoindex_outlast_job_1"}, {"job_waiting"})
    edges = ({"edge_pkey"}, {"sqlite_autoindex_outlast_edge_1"})
    for statement, *wanted in (
        (Statement("notify_followers", rows=ended), edges, by_key),
        (Statement("hold_followers", {"ids": child}), by_key, edges),
        (Statement("recount", {"ids": follower}), by_key, ({"edge_follower"},)),
        (Statement("dependents", {"ids": child}), by_key),
        (
            Statement(
                "cancel_members", {"flow": flow, "limit": 200, "error": error, "asking": True}
            ),
            ({"job_flow_live"}, {"job_flow"}),
            ({"job_team_live"},),
        ),
        (Statement("settle_flow", {"flow": flow}), ({"job_flow_live"}, {"job_flow"})),
        (
            Statement(
                "succeeded_in_flow",
                {"flow": flow, "at": 1.0, "job": LOWEST_ID, "settle": 1.0, "limit": 9},
            ),
            ({"job_flow"},),
        ),
        (Statement("unsettled_flows", {"limit": 100}), ({"flow_cancelled"},)),
        (found("find_half_cancelled"), ({"flow_cancelled"},)),
        (
            Statement("prerequisites", {"id": flowing.follower, "place": -1, "limit": 200}),
            ({"edge_follower"},),
            by_key,
        ),
        (
            Statement("waiting_after", {"after": flowing.follower, "limit": 100}),
            ({"job_waiting"}, {"job_pkey"}),
            ({"edge_follower"},),
        ),
        (Statement("flow_counts", {"id": flow}), ({"job_flow"}, {"job_flow_live"})),
        (Statement("failed_because_of", {"ids": child}), by_key, edges),
        (Statement("prune_edges", {"ids": child}), edges),
        (Statement("prune_ties", {"ids": child}), ({"edge_follower"},)),
        (Statement("prune_flows", {"ids": json.dumps([flow])}),),
        (Statement("prune_parts", {"ids": json.dumps([flow])}), ({"flow_parts"},)),
        (Statement("edges_after", {"after": flowing.child, "limit": 100}), ({"edge_follower"},)),
        (Statement("join_followers", rows=[{"id": flow, "beside": flowing.child, "place": 1}]),),
        (Statement("hold_flows", {"ids": json.dumps([flow])}),),
        (Statement("flow_jobs", {"id": flow, "after": LOWEST_ID, "limit": 9}), ({"job_flow"},)),
        (Statement("flow_edges", {"id": flow, "limit": 9}), ({"job_flow"},), ({"edge_follower"},)),
    ):
        plan = explained(flowing.store, flowing.database, statement)
        names = used_indexes(plan)
        for choices in wanted:
            assert any(choice <= names for choice in choices), f"{statement.name}: {plan}"
        assert "Seq Scan on job" not in plan and "SCAN outlast_job" not in plan, plan
        assert "Seq Scan on edge" not in plan and "SCAN outlast_edge" not in plan, plan
        assert "Seq Scan on flow" not in plan and "SCAN outlast_flow" not in plan, plan


@pytest.mark.parametrize("many", [False, True], ids=["one lane", "many lanes"])
def test_a_claim_by_lanes_reads_the_index_of_lanes(
    database: Database, store: Store, many: bool
) -> None:
    """R241: both statements, whatever the statistics say, with 20,000 jobs in one lane or in
    20,000 lanes; and a claim costs the same as with a few."""
    store.run(declare, [QueueLimits("default", running=90, lane_running=2)], "test")
    costs = []
    for number in (200, 20_000):
        lane_of = (lambda n: f"lane-{n}") if many else (lambda n: "lane-1")
        store.run(enqueue, [new(lane=lane_of(n)) for n in range(number)])
        analyse(database)
        lock, claims = _lane_statements()
        for statement in (lock, *claims):
            plan = explained(store, database, statement)
            assert "job_lane_ready" in used_indexes(plan), plan
            assert not used_indexes(plan) & {"job_ready"}, plan
            assert number < 1000 or "Seq Scan on job" not in plan, plan
            assert "SCAN outlast_job" not in plan, plan
        costs.append([work_of(store, database, one) for one in (lock, *claims)])
    assert all(after <= 3 * before for before, after in zip(*costs, strict=True)), costs


@pytest.mark.kinds("postgres")
def test_a_run_of_lanes_is_claimed_by_id_on_the_hot_path(database: Database, store: Store) -> None:
    """R240: on a table that was never analysed, under the options of the hot path, which never
    sorts or hashes; a claim of 200 jobs costs the same among 20,000 as among 400."""
    store.run(declare, [QueueLimits("default", ordered=True, lane_batch=500)], "test")
    asked = ClaimRequest("w", "default", 200, 9.0, promote=False, turn=LaneTurn()).by_lanes()
    given = {**asked.params, "queue": "default", "limit": 200, "alone": False, "run": 200}
    shares = json.dumps({f"lane-{n}": 4 for n in range(50)})
    statement, costs = Statement("claim_lane_runs", {**given, "shares": shares}), list[int]()
    for number in (400, 19_600):
        store.run(enqueue, [new(lane=f"lane-{n % 100}") for n in range(number)])
        plan = explained(store, database, statement, HOT_PATH_OPTIONS)
        assert "job_lane_ready" in used_indexes(plan), plan
        whole = re.findall(r"job_pkey on job\b.*\n\s++(?!Index Cond).*", plan)
        assert not whole and "SCAN outlast_job" not in plan, plan
        costs.append(work_of(store, database, statement, HOT_PATH_OPTIONS))
    assert costs[1] <= 3 * costs[0], costs


@pytest.mark.parametrize("limits", [{}, {"lane_running": 90}], ids=["plain", "lanes"])
def test_a_claim_for_the_longest_due_hops_from_priority_to_priority(
    database: Database, store: Store, limits: dict[str, Any]
) -> None:
    """R036, R243: behind 20,000 jobs of a higher priority, the first of a lower one costs as much
    as behind 200."""
    if limits:
        store.run(declare, [QueueLimits("default", **limits)], "test")
    statement, costs = CLAIM_LONGEST_DUE, list[int]()
    lane: str | None = None
    if limits:
        _, (_, statement, _) = _lane_statements()
        lane = "lane-1"
    long_ago = time.time() - 60
    store.run(enqueue, [new(priority=-9, at=long_ago, lane=lane) for _ in range(20)])
    for number in (200, 20_000):
        for priority in (3, 2, 1):
            store.run(enqueue, [new(priority=priority, lane=lane) for _ in range(number // 3)])
        analyse(database)
        plan = explained(store, database, statement)
        assert used_indexes(plan) >= {"job_lane_ready" if limits else "job_ready"}, plan
        assert "SCAN outlast_job" not in plan, plan
        costs.append(work_of(store, database, statement))
    assert costs[1] <= 2 * costs[0], costs


def _lane_statements() -> tuple[Statement, list[Statement]]:
    asked = ClaimRequest("w", "default", 10, 9.0, promote=False, turn=LaneTurn()).by_lanes()
    shares = json.dumps({f"lane-{n}": 1 for n in range(64)})
    given = {**asked.params, "queue": "default", "limit": 10, "alone": True, "shares": shares}
    names = ("claim_lanes", "claim_lanes_longest_due", "claim_ordered_lanes")
    return asked.opening()[-1], [Statement(name, given) for name in names]


def crowd(database: Database, state: str, number: int) -> None:
    """Rows of one state, made in the database itself."""
    common = "'default', 'default', 'work', '{}', 0, 3, 3, 1, 1"
    columns = (
        "id, tenant, queue, task, args, priority, max_attempts, max_crashes, attempt, fence,"
        " state, worker, run_at, created_at, started_at, lease_until, finished_at"
    )
    offset = 0 if state == "succeeded" else ENDED
    running = state == "running"
    if database.is_sqlite:
        serial = f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n < {number})"
        id = f"printf('00000000-0000-7000-8000-%012x', n + {offset})"
        now, source = "strftime('%s') + 0.0", "s"
        later, ended = f"{now} + 3600", f"{now} - n / 1000.0"
    else:
        serial = ""
        id = f"CAST('00000000-0000-7000-8000-' || lpad(to_hex(n + {offset}), 12, '0') AS uuid)"
        now, source = "now()", f"generate_series(1, {number}) AS n"
        later, ended = "now() + interval '1 hour'", "now() - n * interval '1 millisecond'"
    times = f"{now}, {now}, {now}, {later if running else 'NULL'}, {'NULL' if running else ended}"
    with database.connect() as connection:
        connection.execute(
            f"INSERT INTO {table(database, 'job')} ({columns}) {serial}"
            f" SELECT {id}, {common}, '{state}', 'elsewhere', {times} FROM {source}"
        )


def analyse(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(f"ANALYZE {table(database, 'job')}")


def explained(store: Store, database: Database, statement: Statement, options: str = "") -> str:
    """The plan as text, for the parameters given, and PostgreSQL's options. Nothing is changed."""
    query = store.queries[statement.name]
    if database.is_sqlite:
        with database.connect() as connection:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {query.sql}", statement.bind).fetchall()
        return "\n".join(row[3] for row in rows)
    client = psycopg.ClientCursor
    with psycopg.connect(database.url, cursor_factory=client, options=options) as connection:
        rows = connection.execute(
            f"EXPLAIN (COSTS OFF) {psycopg_text(query)}", statement.bind
        ).fetchall()
    return "\n".join(line for (line,) in rows)


def used_indexes(plan: str) -> set[str]:
    found = re.findall(r"(?:Index(?: Only)? Scan(?: Backward)? (?:using|on)|INDEX) (\w+)", plan)
    return {name.removeprefix("outlast_") for name in found}


def work_of(store: Store, database: Database, statement: Statement, options: str = "") -> int:
    """What a statement costs: instructions that SQLite executes, or pages that PostgreSQL reads. It
    is undone afterwards."""
    query = store.queries[statement.name]
    if database.is_sqlite:
        instructions = itertools.count()
        with database.connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.set_progress_handler(lambda: next(instructions) < 0, 1)
            connection.execute(query.sql, statement.bind).fetchall()
            connection.set_progress_handler(None, 1)
            connection.execute("ROLLBACK")
        return next(instructions)
    client = psycopg.ClientCursor
    with psycopg.connect(database.url, cursor_factory=client, options=options) as connection:
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {psycopg_text(query)}"
        [([explanation],)] = connection.execute(text, statement.bind).fetchall()
        connection.rollback()
    plan = explanation["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
