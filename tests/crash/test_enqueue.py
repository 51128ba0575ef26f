"""Whoever enqueues may die at any moment: a job is there, whole, or it is not there at all."""

from __future__ import annotations

import pytest

from tests.support import Database, Process, Processes, eventually
from tests.support.app import PATIENCE, SLACK, TIMINGS, App

# One process starts many: each is forked from a fresh interpreter, and is as real as any other.
MANY = """
import os, signal, sys, time
from tests.support.app import from_environment
from tests.support.points import arm

app = from_environment()  # imported and defined once; nothing is open yet
app.mark.job(0).new_job()
arm("before nothing")

def child(action, *args):
    pid = os.fork()
    if pid == 0:
        try:
            action(*args)
        finally:
            os._exit(0)
    return pid

def end(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def started(processes: Processes, app: App, script: str, *args: object) -> Process:
    return processes.python(MANY + script, *args, env=app.environment())


@pytest.mark.parametrize(
    "number", [25, pytest.param(100, marks=pytest.mark.campaign)], ids=["sample", "full"]
)
def test_jobs_whose_enqueuer_was_killed_right_after_the_commit_run_exactly_once(
    app: App, processes: Processes, number: int
) -> None:
    """R001, R061, R012, `untriggered`: 100 processes in a campaign, each killed after the commit
    and before anything else; the worker knows nothing but the database."""
    worker = app.start_worker(processes)
    eventually(lambda: app.ol.workers() != [], PATIENCE)
    script = """
def enqueue(number):
    arm("committed insert_job")
    arm("committed insert_job_and_notify")
    app.mark.enqueue(number)

codes = [end(child(enqueue, number)) for number in range(int(sys.argv[1]))]
assert set(codes) == {-signal.SIGKILL}, codes
"""
    started(processes, app, script, number).succeed(60.0)
    runs = app.ledger.wait("run", count=number)
    eventually(lambda: app.ol.counts()["succeeded"] == number)
    jobs = app.ol.jobs()
    assert sorted(job.result for job in jobs) == list(range(number))
    assert sorted(job.id for job in jobs) == sorted(run.job for run in runs)
    delays = [(job.started_at - job.created_at).total_seconds() for job in jobs]
    assert max(delays) < TIMINGS["poll_max"] + 1.0 + SLACK
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert len(app.ledger.read("run")) == number, "none ran twice"


@pytest.mark.parametrize("end", ["killed", "committed"])
def test_a_process_killed_before_its_commit_leaves_neither_job_nor_business_row(
    app: App, processes: Processes, database: Database, end: str
) -> None:
    """R002: and one that commits leaves both."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE orders (n integer)")
    script = f"""
if {database.is_sqlite}:
    import sqlite3
    connection = sqlite3.connect({database.url!r}.removeprefix("sqlite:///"))
    name = "orders"
else:
    import psycopg
    connection = psycopg.connect({database.url!r})
    name = "{database.schema}.orders"
connection.execute(f"INSERT INTO {{name}} VALUES (1)")
app.mark.using(conn=connection).enqueue(1)
if {end!r} == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
connection.commit()
connection.close()
"""
    process = started(processes, app, script)
    assert process.wait(PATIENCE) == (-9 if end == "killed" else 0)
    there = 0 if end == "killed" else 1
    # PostgreSQL may take a moment to notice that its client is gone.
    eventually(lambda: database.rows("SELECT count(*) FROM orders") == [(there,)])
    assert app.ol.counts()["ready"] == there


@pytest.mark.parametrize(
    "number", [4_000, pytest.param(10_000, marks=pytest.mark.campaign)], ids=["sample", "full"]
)
def test_a_bulk_whose_enqueuer_is_killed_midway_is_there_whole_or_not_at_all(
    app: App, processes: Processes, database: Database, number: int
) -> None:
    """R008: 10,000 jobs in one call (4,000 outside campaigns), killed at moments spread over the
    whole of its insert."""
    script = """
def enqueue(queue, armed):
    arm("before copy_jobs", lambda: os.write(ready[1], b"."))
    arm(armed)
    app.ol.enqueue(*[app.mark.using(queue=queue).job(n) for n in range(int(sys.argv[1]))])

def inserting(queue, armed=""):
    pid = child(enqueue, queue, armed)
    os.read(ready[0], 1)
    return pid

ready = os.pipe()
pid = inserting("whole")
began_at = time.monotonic()
assert end(pid) == 0
took = time.monotonic() - began_at
for n in range(3):
    pid = inserting(f"killed-{n}")
    time.sleep(took * n / 3)
    os.kill(pid, signal.SIGKILL)
    end(pid)
assert end(inserting("answered", "committed copy_jobs")) == -signal.SIGKILL
"""
    started(processes, app, script, number).succeed(100.0)

    def settled() -> bool:
        """PostgreSQL may still be at work for a client that is gone."""
        busy = "SELECT 1 FROM pg_stat_activity WHERE query LIKE %s AND query LIKE %s"
        about = ("COPY%", f"%{database.schema}%")
        return database.is_sqlite or not database.rows(f"{busy} AND state <> 'idle'", about)

    eventually(settled, 30.0)
    table = "outlast_job" if database.is_sqlite else "job"
    counts = dict(database.rows(f"SELECT queue, count(*) FROM {table} GROUP BY queue"))
    assert counts.pop("whole") == counts.pop("answered") == number
    assert set(counts.values()) <= {number}, counts
    assert len(counts) < 3, "no kill came in time"
    if database.is_sqlite:
        assert database.rows("PRAGMA integrity_check") == [("ok",)]
