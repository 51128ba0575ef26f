"""What one enqueue costs, counted and not timed: calls in Python, statements, pages, plans.

A limit that is passed is no fault by itself; see tests/worker/test_calls.py.
"""

from __future__ import annotations

import cProfile
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast
from outlast.model.arguments import parameters
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.checkpointer import PAGE_BYTES
from outlast.store.sqlite.store import SqliteStore
from tests.store.callers import Caller
from tests.support import Database

JOBS = 200
FRAME_HEADER_BYTES = 24
MOST_PAGES = 3.6  # 3.3: a row, its id, and its place among the ready; some are split
MOST_CALLS = {"sqlite": 170, "postgres": 235}  # 153 and 217; some more after other tests
MOST_CALLS_ON_CONN = {"sqlite": 232, "postgres": 290}  # 213 and 269


@pytest.fixture
def note(app: Outlast) -> Any:
    @app.task
    async def note(text: str, n: int = 0) -> None: ...

    note.enqueue("the first of them has everything imported")
    app._parts.notify_limiter._clock = lambda: 0.0  # whatever the pace, nothing is due
    app._parts.tx_notify_limiter._clock = lambda: 0.0
    return note


def calls_of_one(note: Any) -> float:
    """Calls of functions, ours and the drivers', for each of some enqueues."""
    note.enqueue("the first here", 1)
    profile = cProfile.Profile()
    profile.enable()
    for n in range(JOBS):
        note.enqueue("some text", n)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats()) / JOBS


def test_one_enqueue_takes_no_more_calls_than_it_did(app: Outlast, note: Any) -> None:
    """R036, R180: validation, the statement and its commit."""
    calls = calls_of_one(note)
    assert calls <= MOST_CALLS[app.store.address.dialect]


def test_one_enqueue_in_a_transaction_takes_no_more_calls_than_it_did(
    app: Outlast, note: Any, caller: Caller
) -> None:
    """R036, R180: on the caller's own connection."""
    calls = calls_of_one(note.using(conn=caller.connection))
    caller.commit()
    assert calls <= MOST_CALLS_ON_CONN[app.store.address.dialect]


@pytest.mark.kinds("sqlite")
def test_the_arguments_of_a_task_are_compiled_once(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R036: not for each enqueue, whatever its options, alone, among many or in a stream."""
    compiled: list[str] = []
    adapter_of: Any = parameters.TypeAdapter

    def counted(shape: Any) -> Any:
        compiled.append(shape)
        return adapter_of(shape)

    monkeypatch.setattr(parameters, "TypeAdapter", counted)

    @app.task
    def one(numbers: list[int]) -> None: ...

    @app.task(batch=5)
    def other(texts: list[str]) -> None: ...

    for n in range(3):
        one.enqueue([n])
        one.using(priority=n, key=f"{n}").enqueue([n])
        other.using(delay=n).enqueue(str(n))
        app.enqueue(*(one.job([n]) for n in range(30)), other.job("x"))
        app.enqueue(one.job([n]) for n in range(3))
    assert len(compiled) == 2


@pytest.mark.kinds("sqlite")
def test_one_enqueue_is_one_statement_in_its_transaction_and_few_pages(
    app: Outlast, note: Any, database: Database
) -> None:
    """R180: what SQLite runs and writes to its log for a job: rows, index entries, and no more."""
    store = app.store
    assert isinstance(store, SqliteStore)
    store.checkpoint()
    statements: list[str] = []
    log = Path(f"{database.path}-wal")
    before = log.stat().st_size
    store.writer.set_trace_callback(statements.append)
    for n in range(JOBS):
        note.enqueue("some text", n)
    store.writer.set_trace_callback(None)
    kinds = [text.split()[0] for text in statements]
    assert kinds == ["BEGIN", "INSERT", "COMMIT"] * JOBS
    pages = (log.stat().st_size - before) / (PAGE_BYTES + FRAME_HEADER_BYTES) / JOBS
    assert pages <= MOST_PAGES


@pytest.mark.kinds("postgres")
@pytest.mark.fresh
def test_one_enqueue_is_parsed_once_for_each_connection(app: Outlast, note: Any) -> None:
    """R180: later ones send parameters only."""
    store = app.store
    assert isinstance(store, PostgresStore)
    for n in range(8):
        note.enqueue("some text", n)
    with store._pool.acquire() as link:
        query = "SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements"
        rows = link.execute(query).fetchall()
    inserts = [used for text, used in rows if text.lstrip().startswith("INSERT")]
    assert len(rows) == len(inserts) <= 2 and sum(inserts) == 9
