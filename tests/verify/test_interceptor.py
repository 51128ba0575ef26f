"""The trap strikes where it is told to, and counts every exchange once."""

from __future__ import annotations

import json
import signal

import pytest

from tests.support import Database, Processes
from tests.support.tiers import slow_but

# What is counted, how it is said, and what is in the database when the process dies before each.
CALLS = {
    "store": "ol.store.run(insert)",
    "asyncio": "asyncio.run(ol.store.arun(insert))",
    "caller": "caller(connection)",
}

PROGRAM = """
    import asyncio, json, sys
    from outlast import Outlast
    from outlast.model.job import NewJob
    from outlast.model.ids import new_job_id
    from outlast.ops.enqueue import enqueue
    from outlast.ops.operation import BEGIN
    from outlast.verify.workspace import Workspace
    from outlast.verify.faults.interceptor import Interceptor
    from pathlib import Path

    url, schema, at, after = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "after"
    ol = Outlast(url, schema=schema)
    trap = Interceptor(at, after)
    trap.install()
    ol.store.ready()
    place = Workspace(url, schema, Path("."))

    def new(name):
        return NewJob(new_job_id(), "t", name, "task", "{}", 0, 1, 1)

    def insert():
        yield BEGIN
        yield from enqueue([new("one")])
        yield from enqueue([new("two")])

    def caller(connection):
        task = ol.task(name="task")(lambda: None)
        ol.enqueue(task.using(queue="one").job(), conn=connection)
        ol.enqueue(task.using(queue="two").job(), conn=connection)
        connection.commit()

    with place.connect() as connection:
        if "%(call)s".startswith("asyncio"):
            ol.store.clone()
        trap.armed = True
        %(call)s
        trap.armed = False
    print(json.dumps(trap.exchanges))
"""


def words(processes: Processes, database: Database, call: str) -> list[str]:
    program = PROGRAM % {"call": CALLS[call]}
    return json.loads(
        processes.python(program, database.url, database.schema, 0, "before").succeed()
    )


def commits_by(word: str) -> bool:
    """A driver's method or the word itself; "read committed" is neither."""
    return "commit" in word.lower().replace("committed", "")


@pytest.mark.parametrize("call", CALLS)
def test_every_exchange_is_counted_once(
    processes: Processes, database: Database, call: str
) -> None:
    said = words(processes, database, call)
    inserts = [word for word in said if word.startswith("INSERT")]
    commits = [word for word in said if commits_by(word)]
    assert (len(inserts), len(commits)) == (2, 1), said


@pytest.mark.parametrize("call", slow_but(["asyncio"], CALLS))
def test_a_process_dies_right_there(processes: Processes, database: Database, call: str) -> None:
    """R205: before the commit nothing stands, after it everything does; and nothing between."""
    said = words(processes, database, call)
    commit = 1 + next(n for n, word in enumerate(said) if commits_by(word))
    rows = 2  # of the walk that only counted
    for at, after, more in ((1, "before", 0), (commit, "before", 0), (commit, "after", 2)):
        program = PROGRAM % {"call": CALLS[call]}
        victim = processes.python(program, database.url, database.schema, at, after)
        assert victim.wait() == -signal.SIGKILL
        rows += more
        table = "outlast_job" if database.is_sqlite else "job"
        assert database.rows(f"SELECT count(*) FROM {table}") == [(rows,)], (at, after)


def test_a_path_that_is_too_short_survives(processes: Processes, database: Database) -> None:
    program = PROGRAM % {"call": CALLS["store"]}
    processes.python(program, database.url, database.schema, 99, "after").succeed()
