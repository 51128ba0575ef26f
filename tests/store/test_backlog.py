"""The view `backlog`, which autoscalers read: its columns stay, its counts are those of rows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import yaml

from outlast import Outlast
from outlast.store import Store
from tests.store.jobs import make_due, put, set_all, take
from tests.support import Database
from tests.support.processes import ROOT

pytestmark = pytest.mark.kinds("postgres")

SCALER = ROOT / "deploy" / "kubernetes" / "keda" / "scaler.yaml"


def backlog(database: Database) -> dict[str, tuple[Any, ...]]:
    with psycopg.connect(database.url) as conn:
        rows = conn.execute(
            f'SELECT queue, ready, running, oldest_seconds FROM "{database.schema}".backlog'
        ).fetchall()
    return {queue: tuple(figures) for queue, *figures in rows}


def test_an_empty_system_has_no_backlog(store: Store, database: Database) -> None:
    assert backlog(database) == {}


def test_jobs_that_are_due_or_run_are_counted_by_queue(store: Store, database: Database) -> None:
    """A job whose retry is due counts before a worker promotes it; one of tomorrow does not."""
    put(store.run, 5, queue="mail")
    take(store.run, 2, queue="mail")
    put(store.run, 3, queue="docs", delay=3600)
    make_due(database)
    put(store.run, 4, queue="docs", delay=3600)
    counted = {queue: figures[:2] for queue, figures in backlog(database).items()}
    assert counted == {"mail": (3, 2), "docs": (3, 0)}


def test_the_age_is_that_of_the_oldest_job_that_is_due(store: Store, database: Database) -> None:
    put(store.run, 2, queue="mail")
    set_all(database, "run_at = now() - interval '90 seconds'")
    put(store.run, 1, queue="mail")
    ((ready, running, age),) = backlog(database).values()
    assert (ready, running) == (3, 0)
    assert 90 <= age < 150


def test_a_paused_queue_asks_for_no_workers(store: Store, app: Outlast, database: Database) -> None:
    """Its running jobs still count, so that they are not scaled away."""
    put(store.run, 3, queue="mail")
    take(store.run, 1, queue="mail")
    app.pause("mail")
    assert backlog(database)["mail"][:2] == (0, 1)
    app.resume("mail")
    assert backlog(database)["mail"][:2] == (2, 1)


def test_the_query_of_the_shipped_scaler_counts_them(store: Store, database: Database) -> None:
    put(store.run, 5, queue="mail")
    take(store.run, 2, queue="mail")
    scaled = list(yaml.safe_load_all(SCALER.read_text()))[1]
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    with psycopg.connect(database.url) as conn:
        found = conn.execute(query.replace("outlast.", f'"{database.schema}".')).fetchone()
    assert found == (5,)


def test_one_queue_is_counted_along_the_index_of_ready_jobs(
    store: Store, database: Database
) -> None:
    """A large history costs nothing: no plan reads the whole table."""
    put(store.run, 2000, queue="mail")
    set_all(database, "state = 'succeeded', finished_at = now(), run_at = now()")
    with psycopg.connect(database.url, autocommit=True) as conn:
        conn.execute(f'ANALYZE "{database.schema}".job')
        plan = conn.execute(
            f'EXPLAIN SELECT * FROM "{database.schema}".backlog WHERE queue = %s', ["mail"]
        ).fetchall()
    assert "Seq Scan on job" not in "\n".join(line for (line,) in plan)
