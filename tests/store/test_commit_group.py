"""Group commit on SQLite: threads that enqueue at the same time share a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from outlast import Outlast, StoreError
from outlast.model.job import NewJob
from outlast.ops.enqueue import enqueue_one
from outlast.ops.operation import CommitPipeline, Statement
from outlast.store.sqlite import store as sqlite_store
from outlast.store.sqlite.store import SqliteStore
from tests.store.jobs import new
from tests.support import Database, eventually

THREADS = 8

pytestmark = pytest.mark.kinds("sqlite")


@pytest.fixture
def store(app: Outlast) -> SqliteStore:
    assert isinstance(app.store, SqliteStore)
    app.store.ready()
    return app.store


@contextmanager
def gathered(store: SqliteStore, *work: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """All of these wait for the writer, each in a thread of its own; then it is free."""
    with ThreadPoolExecutor(len(work)) as threads:
        with store._lock:
            futures = [threads.submit(one) for one in work]
            eventually(lambda: len(store._group) == len(work))
        yield futures


def enqueuing(store: SqliteStore, jobs: list[NewJob]) -> list[Callable[[], Any]]:
    return [lambda job=job: store.run(enqueue_one, job) for job in jobs]  # type: ignore[misc]


def test_threads_that_wait_share_a_commit(app: Outlast, store: SqliteStore) -> None:
    """R180: and each has the answer for its own job."""
    jobs = [new(args=f'{{"n": {n}}}') for n in range(THREADS)]
    before = store._checkpointer.commits
    with gathered(store, *enqueuing(store, jobs)) as futures:
        made = [one.result() for one in futures]
    assert store._checkpointer.commits == before + 1
    assert [job.id for job in made] == [job.id for job in jobs]
    assert [app.job(job.id) for job in jobs] == made


def test_a_job_is_committed_when_its_thread_is_answered(
    store: SqliteStore, database: Database
) -> None:
    """R001: for all of the group, as another process sees it."""
    seen: dict[str, bool] = {}

    def enqueue_and_look(job: NewJob) -> None:
        store.run(enqueue_one, job)
        with closing(sqlite3.connect(database.path)) as other:
            query = "SELECT count(*) FROM outlast_job WHERE id = ?"
            seen[job.id] = other.execute(query, (job.id,)).fetchone() == (1,)

    jobs = [new() for _ in range(THREADS)]
    with gathered(store, *(lambda job=job: enqueue_and_look(job) for job in jobs)):  # type: ignore
        pass
    assert seen == dict.fromkeys((job.id for job in jobs), True)


def test_a_job_that_is_refused_fails_its_own_thread_only(app: Outlast, store: SqliteStore) -> None:
    """R008: the others of the group are inserted."""
    jobs = [new() for _ in range(THREADS)]
    jobs[3] = new(max_attempts=-1)
    with gathered(store, *enqueuing(store, jobs)) as futures:
        errors = [one.exception() for one in futures]
    assert [isinstance(error, StoreError) for error in errors] == [n == 3 for n in range(THREADS)]
    assert {job.id for job in app.jobs()} == {job.id for job in jobs} - {jobs[3].id}


def test_a_commit_that_fails_answers_nobody(
    app: Outlast, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001, R003: each thread tries again by itself, and no job is there twice."""
    failing = iter([True])
    commit = sqlite_store.SqliteSession._commit

    def fail_once(session: Any) -> None:
        if next(failing, False):
            session._roll_back()
            raise sqlite3.OperationalError("disk I/O error")
        commit(session)

    monkeypatch.setattr(sqlite_store.SqliteSession, "_commit", fail_once)
    jobs = [new() for _ in range(THREADS)]
    with gathered(store, *enqueuing(store, jobs)) as futures:
        assert {one.result().id for one in futures} == {job.id for job in jobs}
    assert {job.id for job in app.jobs()} == {job.id for job in jobs}


def test_a_key_that_stands_is_found_from_within_a_group(app: Outlast, store: SqliteStore) -> None:
    """R003: such an operation goes on after its statement."""
    jobs = [new(key="k") for _ in range(THREADS)]
    with gathered(store, *enqueuing(store, jobs)) as futures:
        made = {one.result().id for one in futures}
    assert made == {job.id for job in app.jobs()} and len(made) == 1


def test_a_child_does_not_inherit_who_waits(store: SqliteStore) -> None:
    """R001: a fork leaves the threads behind, and their jobs are the parent's."""
    store._group.join(CommitPipeline([Statement("insert_job", new().params())]))
    store.before_fork()
    store.after_fork_in_child()
    assert len(store._group) == 0
