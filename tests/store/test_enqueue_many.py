"""Ways in: one statement for one job, COPY for many. Counted, and the same jobs as by any way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from outlast import Outlast
from outlast.client.enqueue import enqueue_jobs
from outlast.client.faces import finish
from outlast.model.errors import InvalidArguments, StoreError
from outlast.model.flow_builder import build_jobs
from outlast.ops.enqueue import JOBS_PER_STATEMENT, enqueue
from outlast.ops.enqueue_many import MIN_JOBS, enqueue_many
from tests.store.jobs import new
from tests.support import Database
from tests.worker.working import Spy

TEXTS = ["a\\b", "\\N", "\\.", "tab\t", "line\nline\r", "é \u2028 🙂", "'\"", "", "\x7f"]

Verb = Callable[..., Any]


@pytest.fixture
def note(app: Outlast) -> Any:
    @app.task(tenant="t\\n")
    async def note(text: str, n: int) -> None: ...

    return note


def test_what_is_copied_reads_as_it_was_given(app: Outlast, note: Any, verb: Verb) -> None:
    """R008: whatever its text, in a limited queue or not; and the answers are as the rows are."""
    app.limit("limited", running=1)
    tasks = [note, note.using(queue="limited", priority=7, timeout=2.5), note.using(lane="l")]
    calls = [task.job(text=text, n=n) for n, task in enumerate(tasks) for text in TEXTS]
    assert len(calls) >= MIN_JOBS
    made = verb("enqueue", *calls)
    assert [job.args["text"] for job in made] == TEXTS * len(tasks)
    assert [job.lane for job in made[:: len(TEXTS)]] == [None, "default", "l"]
    assert [verb("job", job.id) for job in made] == made


def test_jobs_whose_answer_got_lost_are_found_again(app: Outlast, note: Any) -> None:
    """R003, R061: sent again, some of them or all, they are the same jobs; and one beside them that
    is new is inserted."""
    jobs = build_jobs([note.job(text="x", n=n) for n in range(MIN_JOBS + 1)])
    first = finish(enqueue_jobs(app._blocking, jobs[:-1]))
    again = finish(enqueue_jobs(app._blocking, jobs))
    alone = finish(enqueue_jobs(app._blocking, jobs[:1]))
    assert again[:-1] == first and alone == first[:1]
    assert app.counts()["ready"] == len(jobs)


def test_a_row_that_is_refused_leaves_none(app: Outlast, note: Any) -> None:
    """R008: the copy is one transaction, and so is what is tried instead."""
    jobs = [new(queue="q") for _ in range(MIN_JOBS)] + [new(max_attempts=-1)]
    for way in (enqueue_many, enqueue):
        with pytest.raises(StoreError):
            app.store.run(way, jobs)
    with pytest.raises(InvalidArguments, match="2 of 30 jobs"):
        app.enqueue(*(note.job(text="x", n=n if n > 1 else "no") for n in range(30)))
    assert app.counts()["ready"] == 0


def test_one_job_is_one_statement_and_many_are_three(app: Outlast, note: Any) -> None:
    """R180: no other round trip, and a notification goes with the first job after a pause."""
    app.migrate()
    app._parts.notify_limiter._clock = lambda: 0.0  # nothing is due after the first
    spy = Spy(app)
    note.enqueue(text="x", n=1)
    at_once = "insert_job_and_notify" if app.store.can_notify else "insert_job"
    assert dict(spy.counts) == {at_once: 1} and spy.round_trips == 1
    spy.forget()
    note.enqueue(text="x", n=1)
    assert dict(spy.counts) == {"insert_job": 1}
    spy.forget()
    app.enqueue(*(note.job(text="x", n=n) for n in range(MIN_JOBS)))
    assert dict(spy.counts) == {"clock_of_copy": 1, "lane_rules": 1, "copy_jobs": 1}


@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=["copy", "insert"])
def test_very_many_jobs_are_several_statements(
    app: Outlast, note: Any, options: dict[str, Any]
) -> None:
    """R008, R061: the timeout of a statement is no limit to the number of jobs. They are still all
    or none."""
    app.migrate()
    number = 2 * JOBS_PER_STATEMENT + 1
    jobs = build_jobs([note.using(**options).job(text="x", n=n) for n in range(number)])
    spy = Spy(app)
    made = finish(enqueue_jobs(app._blocking, jobs))
    name = "insert_jobs" if options else "copy_jobs"
    assert spy.counts[name] >= 3
    assert [job.id for job in made] == [job.id for job in jobs]
    assert sum(app.counts().values()) == number
    more = [*(new() for _ in range(JOBS_PER_STATEMENT)), new(max_attempts=-1)]
    for way in (enqueue_many, enqueue):
        with pytest.raises(StoreError):
            app.store.run(way, more)
    assert sum(app.counts().values()) == number


def test_a_notification_that_is_refused_costs_no_job(app: Outlast, note: Any) -> None:
    """R012: the server's queue of notifications may be full; polling finds the job."""
    app.migrate()
    spy = Spy(app)
    spy.refuse("insert_job_and_notify", StoreError("too many notifications", refused=True))
    job = note.enqueue(text="x", n=1)
    assert app.job(job.id) == job


@pytest.mark.kinds("postgres")
@pytest.mark.fresh
def test_a_job_that_is_copied_writes_less(app: Outlast, note: Any, database: Database) -> None:
    """R180: bytes in the write-ahead log for each, its two index entries among them."""
    number = 1000

    def logged(way: Callable[[], object]) -> float:
        with psycopg.connect(database.direct_url, autocommit=True) as connection:
            (before,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or ()
            way()
            row = connection.execute(
                "SELECT pg_current_wal_insert_lsn() - CAST(%s AS pg_lsn)", (before,)
            ).fetchone()
        return float(row[0]) / number if row else 0.0

    calls = [note.job(text="x", n=n) for n in range(number)]
    app.enqueue(*calls)
    assert min(logged(lambda: app.enqueue(*calls)) for _ in range(3)) <= 480
