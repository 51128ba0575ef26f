"""What is measured in the tables: asked for seldom, told with its age, and never waited for."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest

from outlast import Outlast, State
from outlast.metrics.collectors import Sample, TableCollector
from outlast.metrics.labels import Labels
from outlast.metrics.snapshot import FRESH_FOR_S, TableSnapshot
from outlast.model.breaker import Circuit, OpenBreaker
from outlast.model.errors import StoreUnavailable
from outlast.model.outcome import waits
from outlast.model.wait import Wait, WaitKind
from outlast.ops.breakers import open_breaker
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.finish import finish
from outlast.ops.lanes import LaneTurn
from outlast.ops.table_metrics import QueueDepth, TableMetrics, read_table_metrics
from outlast.store.statements import queries
from outlast.worker.worker_metrics import MAX_NAMES
from tests.support import Database, aeventually
from tests.support.app import App
from tests.worker.working import Spy, sql, work


def said(tables: TableCollector, measured: TableMetrics) -> dict[tuple[str, tuple[str, ...]], Any]:
    samples: list[Sample] = list(tables.samples(measured))
    return {(sample.name, sample.labels): sample.value for sample in samples}


def test_an_open_breaker_is_a_gauge_that_falls_back_to_zero(app: App) -> None:
    """R195, R223: with a bounded number of names, whatever others make up."""
    down = OpenBreaker(Circuit("a", "push"), "first", "ConnectionError")
    tables, gauge = TableCollector(), ("outlast_breaker_open", ("a", "push"))
    assert gauge not in said(tables, app.ol.store.run(read_table_metrics))
    app.ol.store.run(open_breaker, down, "refused", "w1", 60.0)
    assert said(tables, app.ol.store.run(read_table_metrics))[gauge] == 1
    assert app.ol.close_breaker("a") == 1
    assert said(tables, app.ol.store.run(read_table_metrics))[gauge] == 0
    many = TableMetrics(breakers=[Circuit(f"q{n}", f"t{n}") for n in range(5000)])
    assert len(said(TableCollector(), many)) < 200


def test_everything_is_measured_as_of_one_moment(app: App, database: Database) -> None:
    """R194, in one statement: nothing torn (R195)."""
    app.ol.enqueue(*(app.mark.using(queue=queue).job(n=1) for queue in "aab"))
    app.mark.using(queue="a", delay=60).enqueue(n=1)
    [dead, running] = app.ol.enqueue(*(app.mark.using(queue="b").job(n=1) for _ in range(2)))
    sql(database, "UPDATE {job} SET state = 'dead', finished_at = run_at WHERE id = ?", dead.id)
    ago = "created_at - 90" if database.is_sqlite else "created_at - interval '90 seconds'"
    sql(database, "UPDATE {job} SET state = 'running', worker = 'w', created_at = " + ago
        + ", lease_until = " + ago + " WHERE id = ?", running.id)  # fmt: skip
    app.ol.pause("b")
    spy = Spy(app.ol)
    measured = app.ol.store.run(read_table_metrics)
    assert spy.round_trips == 1
    depths = {key: depth.number for key, depth in measured.depths.items()}
    assert depths == {
        ("a", "ready"): 2, ("a", "scheduled"): 1, ("b", "ready"): 1, ("b", "dead"): 1,
        ("b", "running"): 1,
    }  # fmt: skip
    assert measured.depths["b", "running"].oldest > 85
    assert (measured.expired, measured.paused) == (1, ["b"])
    assert measured.expired_for > 85
    told = said(TableCollector(), measured)
    assert told["outlast_jobs", ("a", "ready")] == 2
    assert told["outlast_dwell_seconds", ("a",)] < 60, "what is not due does not dwell"
    assert told["outlast_queue_paused", ("b",)] == 1


def test_limits_lanes_and_quotas_are_measured_by_queue(app: App) -> None:
    """R149, R194, R238: what runs and may run, lanes by state, and what is used of a quota; never
    a lane as a label."""
    ol, tables = app.ol, TableCollector()
    ol.queue("mail", running=5, lane="tenant", lane_rate="1/h", quota="9/d")
    ol.queue("calls", rate="1/h", burst=2)
    mail = app.mark.using(queue="mail")
    ol.enqueue(*(mail.using(tenant=f"t{n}").job(n=n) for n in range(4)))
    ol.enqueue(*(app.mark.using(queue="calls").job(n=n) for n in range(4)))
    ol.pause("mail", lane="t3")
    told = said(tables, ol.store.run(read_table_metrics))
    assert told["outlast_queue_running_limit", ("mail",)] == 5
    assert told["outlast_queue_throttled", ("calls",)] == 0
    assert told["outlast_queue_quota", ("mail",)] == 9
    assert told["outlast_queue_quota_used", ("mail",)] == 4
    assert _lanes(told, "mail") == {"waiting": 4, "throttled": 0, "paused": 1}
    for queue in ("mail", "calls"):
        ol.store.run(claim, ClaimRequest("w1", queue, 2, 60.0, turn=LaneTurn()))
    told = said(tables, ol.store.run(read_table_metrics))
    assert told["outlast_jobs", ("mail", "running")] == 2
    assert _lanes(told, "mail") == {"waiting": 2, "throttled": 2, "paused": 1}
    assert _lanes(told, "calls") == {"waiting": 1, "throttled": 0, "paused": 0}
    assert told["outlast_queue_throttled", ("calls",)] == 1
    assert not any("t0" in labels for _, labels in told)


def test_handlers_that_wait_are_measured_by_the_name_of_their_wait(app: App) -> None:
    """R245, R246: how many, and for how long; of ever new names, the most frequent."""
    store = app.ol.store
    app.ol.enqueue(*(app.mark.job(n=n) for n in range(4)))
    claims = store.run(claim, ClaimRequest("w1", "default", 4, 60.0))
    names = ["approval", "approval", "paid", "sleep"]
    kinds = [WaitKind.SIGNAL] * 3 + [WaitKind.SLEEP]
    store.run(finish, [
        waits(one, Wait(name, kind, (name,), 60.0))
        for one, name, kind in zip(claims, names, kinds, strict=True)
    ])  # fmt: skip
    told = said(TableCollector(), store.run(read_table_metrics))
    found = {labels: n for (name, labels), n in told.items() if name == "outlast_waiting_handlers"}
    assert found == {("approval",): 2, ("paid",): 1}
    assert 0 <= told["outlast_waiting_handlers_oldest_seconds", ("paid",)] < 60
    many = TableMetrics(waits={f"ask {n}": QueueDepth(2, 1.0) for n in range(MAX_NAMES + 5)})
    series = said(TableCollector(), many)
    assert series["outlast_waiting_handlers", ("other",)] == 10


def test_series_of_limits_are_bounded() -> None:
    """R194: however many queues have limits."""
    names = [f"q{n}" for n in range(5000)]
    many = TableMetrics(
        running_limits=dict.fromkeys(names, 1),
        throttled=dict.fromkeys(names, True),
        quotas=dict.fromkeys(names, (2, 1)),
        lanes={(name, "waiting"): 3 for name in names},
    )
    told = said(TableCollector(), many)
    assert len(told) < 2000
    assert told["outlast_queue_quota", ("other",)] == 2 * (5000 - MAX_NAMES)


def test_waiting_lanes_are_counted_up_to_a_thousand(app: App) -> None:
    """R241: a scrape does not walk a hundred thousand lanes."""
    app.ol.queue("mail", lane="tenant")
    app.ol.enqueue(*(app.mark.using(queue="mail", tenant=f"t{n}").job(n=n) for n in range(1010)))
    assert app.ol.store.run(read_table_metrics).lanes["mail", "waiting"] == 1000


def _lanes(told: dict[tuple[str, tuple[str, ...]], Any], queue: str) -> dict[str, Any]:
    return {
        labels[1]: value
        for (name, labels), value in told.items()
        if name == "outlast_lanes" and labels[0] == queue
    }


@pytest.mark.kinds("sqlite")
def test_a_queue_that_is_empty_says_so(app: App, database: Database) -> None:
    job = app.mark.using(queue="a").enqueue(n=1)
    tables = TableCollector()
    assert said(tables, app.ol.store.run(read_table_metrics))["outlast_jobs", ("a", "ready")] == 1
    app.ol.cancel(job.id)
    told = said(tables, app.ol.store.run(read_table_metrics))
    assert (
        told["outlast_jobs", ("a", "ready")] == told["outlast_oldest_seconds", ("a", "ready")] == 0
    )


def test_names_are_bounded() -> None:
    """R194"""
    labels = Labels(limit=2)
    assert [labels(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]
    assert labels.given == ["a", "b", "other"]


@pytest.mark.kinds("sqlite")
async def test_many_scrapes_are_one_query(app: App) -> None:
    spy, snapshot = Spy(app.ol), TableSnapshot(app.ol.store)
    await snapshot.latest()
    once = spy.counts["table_metrics"]
    for _ in range(3):
        await asyncio.gather(*(snapshot.latest() for _ in range(50)))
    assert spy.counts["table_metrics"] == once > 0
    assert snapshot.age < FRESH_FOR_S


@pytest.mark.kinds("sqlite")
async def test_what_cannot_be_measured_grows_old(app: App) -> None:
    """R195: the last one stands, and its age tells."""
    spy, snapshot = Spy(app.ol), TableSnapshot(app.ol.store, fresh=0.0)
    first = await snapshot.latest()
    assert first is not None
    age = snapshot.age
    spy.refuse("table_metrics", StoreUnavailable(reason="gone"), times=100)

    async def failed_twice() -> bool:
        assert await snapshot.latest() is first
        return snapshot.failing and snapshot.failures >= 2

    await aeventually(failed_twice)
    assert snapshot.age > age


@pytest.mark.kinds("postgres")
async def test_a_slow_database_keeps_no_scrape_waiting(app: App, database: Database) -> None:
    """R191, and while it is slow it is not asked again."""
    snapshot = TableSnapshot(app.ol.store)
    connection = await psycopg.AsyncConnection.connect(database.direct_url)
    try:
        await connection.execute(f"LOCK TABLE {database.schema}.job IN ACCESS EXCLUSIVE MODE")  # type: ignore[arg-type]
        began = time.monotonic()
        waits = [snapshot.latest(wait=0.1) for _ in range(5)]
        assert await asyncio.gather(*waits) == [None] * 5
        assert time.monotonic() - began < 2.0
    finally:
        await connection.close()
    assert await aeventually(snapshot.latest)
    await app.ol.aclose()


@pytest.mark.kinds("postgres")
async def test_a_job_that_somebody_holds_is_seen_to_age(app: App, database: Database) -> None:
    """R125: one row is locked, the others drain, and the oldest age tells of it."""
    await ages(app, database, 2.5)


@pytest.mark.campaign
@pytest.mark.kinds("postgres")
async def test_a_job_that_somebody_holds_for_a_minute(app: App, database: Database) -> None:
    """R125, at its full length: at least 55 of 60 seconds."""
    await ages(app, database, 60.0)


async def ages(app: App, database: Database, seconds: float) -> None:
    held = await app.mark.aenqueue(n=0)
    connection = await psycopg.AsyncConnection.connect(database.direct_url)
    lock = f"SELECT id FROM {database.schema}.job WHERE id = %s FOR UPDATE"
    await connection.execute(lock, [held.id])  # type: ignore[arg-type]
    until = time.monotonic() + seconds
    others = await app.ol.aenqueue(*(app.mark.job(n=n) for n in range(20)))
    async with work(app.ol):
        await aeventually(lambda: _drained(app.ol, len(others)))
        while time.monotonic() < until:
            measured = await app.ol.store.arun(read_table_metrics)
            await asyncio.sleep(0.1)
        told = said(TableCollector(), measured)
        assert told["outlast_oldest_seconds", ("default", "ready")] > seconds * 0.9
        assert told["outlast_dwell_seconds", ("default",)] > seconds * 0.9
        assert told["outlast_jobs", ("default", "ready")] == 1
        await connection.close()
        await aeventually(lambda: _drained(app.ol, len(others) + 1))
    await app.ol.aclose()


async def _drained(ol: Outlast, number: int) -> bool:
    return (await ol.acounts())[State.SUCCEEDED] == number


@pytest.mark.kinds("postgres")
def test_finished_jobs_are_not_looked_at(app: App, database: Database) -> None:
    """However many there are: each live state has its own index."""
    insert = """
        INSERT INTO {job} (id, tenant, queue, task, args, state, priority, run_at, max_attempts,
            max_crashes, created_at, finished_at)
        SELECT gen_random_uuid(), 't', 'q', 'task', '{{}}', 'succeeded', 0, now(), 1, 3, now(),
            now()
        FROM generate_series(1, 20000) AS n RETURNING 1"""
    sql(database, insert)
    with psycopg.connect(database.direct_url, autocommit=True) as connection:
        connection.execute(f"VACUUM ANALYZE {database.schema}.job")  # type: ignore[arg-type]
        text = queries("postgres", database.schema)["table_metrics"].sql
        plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + text))  # type: ignore[arg-type]
    assert "Seq Scan on job" not in plan, plan
