"""A worker takes more jobs of one task, for a batch that it gathers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from outlast.model.ids import new_job_id
from outlast.ops import job_actions
from outlast.ops.claim import SCAN_AHEAD_ROWS
from outlast.ops.enqueue import enqueue
from outlast.ops.report import clock
from outlast.store import Store, open_store
from tests.store.conftest import Run
from tests.store.jobs import end, make_due, new, put, states, table, take
from tests.support import Database, eventually
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def test_only_jobs_of_the_task_are_taken_in_the_order_of_the_queue(run: Run) -> None:
    """R037, R055"""
    now = run(clock)
    jobs = [
        new(task=task, priority=priority, at=now - age, id=new_job_id())
        for task in ("batch", "other")
        for priority in (0, 7)
        for age in (0, 10, 20)
    ]
    random.Random(55).shuffle(jobs)
    run(enqueue, [*jobs, new(task="batch", queue="elsewhere")])
    wanted = sorted(
        (one for one in jobs if one.task == "batch"),
        key=lambda one: (-one.priority, one.at or 0, one.id),
    )
    taken = [*take(run, 4, task="batch"), *take(run, 9, task="batch")]
    assert [one.id for one in taken] == [one.id for one in wanted]
    assert {(one.attempt, one.fence, one.worker) for one in taken} == {(1, 1, "w1")}
    assert len(take(run, 99)) == 6, "the others are as they were"


def test_what_a_claim_would_not_take_is_not_taken(run: Run, database: Database) -> None:
    """R037, R050: of a paused queue, expired, not yet due, on its last life or its last try."""
    put(run, task="batch")
    put(run, task="batch", delay=60.0)
    put(run, task="batch", expires_in=0.05)
    put(run, 2, task="batch")
    ready = f"UPDATE {table(database, 'job')} SET"
    *_, lives, tries = database.rows(f"SELECT id FROM {table(database, 'job')} ORDER BY id")
    mark = "?" if database.is_sqlite else "%s"
    database.rows(f"{ready} crashes = 2 WHERE id = {mark}", lives)
    database.rows(f"{ready} failures = 2 WHERE id = {mark}", tries)
    before = run(clock)
    eventually(lambda: run(clock) > before + 0.06)
    run(job_actions.set_paused, "default", True, "a test")
    assert take(run, 9, task="batch") == []
    run(job_actions.set_paused, "default", False, "a test")
    assert len(take(run, 9, task="batch")) == 1
    assert sorted(states(database)) == ["ready"] * 3 + ["running", "scheduled"]


def test_a_retry_that_has_tries_left_may_join(run: Run, database: Database) -> None:
    put(run, task="batch")
    (first,) = take(run, 1, task="batch")
    end(run, first, "failed")
    make_due(database)
    (again,) = take(run, 1, task="batch")
    assert (again.id, again.failures) == (first.id, 1)


@pytest.mark.kinds("sqlite", "postgres")
def test_a_long_line_of_others_is_not_searched_through(store: Store) -> None:
    """R036, R037: what stands behind it waits its turn."""
    put(store.run, 3, task="batch", priority=1)
    put(store.run, SCAN_AHEAD_ROWS + 10, task="other")
    put(store.run, 3, task="batch")
    assert len(take(store.run, 5, task="batch")) == 3
    assert take(store.run, 5, task="batch") == []


@pytest.mark.kinds("sqlite", "postgres")
def test_workers_that_gather_at_once_share_what_there_is(store: Store, database: Database) -> None:
    """R024: nothing is taken twice, and nothing is left."""
    put(store.run, 1000, task="batch")

    def gather(worker: str) -> list[str]:
        with closing(open_store(database.url, database.schema)) as own:
            found: list[str] = []
            while claims := take(own.run, 50, task="batch", worker=worker):
                found += [claim.id for claim in claims]
            return found

    with ThreadPoolExecutor(4) as threads:
        taken = [id for ids in threads.map(gather, "abcd") for id in ids]
    taken += [claim.id for claim in take(store.run, 1000, task="batch")]
    assert len(taken) == len(set(taken)) == 1000
