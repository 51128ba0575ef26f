"""The conformance suite: the same promises on SQLite, on PostgreSQL and through a pooler.

`run(operation, *args)` carries an operation out; a test that takes it runs on every kind of
database, once with blocking connections and once with asyncio ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from outlast import Outlast
from outlast.store import Store, open_store
from tests.store.callers import Caller, Psycopg, Sqlite3
from tests.support import Database

T = TypeVar("T")
Run = Callable[..., Any]


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    """The test's database, its tables created."""
    opened = open_store(database.url, database.schema)
    opened.ready()
    yield opened
    opened.close()


@pytest.fixture(params=["blocking", "asyncio"])
def run(request: pytest.FixtureRequest, store: Store) -> Iterator[Run]:
    if request.param == "blocking":
        yield store.run
        return
    with asyncio.Runner() as loop:

        def await_it(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return loop.run(store.arun(operation, *args, **kwargs))

        yield await_it
        loop.run(store.aclose())


@pytest.fixture
def app(database: Database) -> Iterator[Outlast]:
    with Outlast(database.url, schema=database.schema) as opened:
        yield opened


@pytest.fixture
def caller(app: Outlast, database: Database) -> Iterator[Caller]:
    """A connection of the caller's own, to the test's database."""
    app.migrate()
    opened = (Sqlite3 if database.is_sqlite else Psycopg)(database)
    yield opened
    opened.close()


@pytest.fixture(params=["blocking", "asyncio"])
def verb(request: pytest.FixtureRequest, app: Outlast) -> Iterator[Run]:
    """`verb("cancel", id)`: a client's verb, or its a-twin awaited."""
    if request.param == "blocking":
        yield lambda name, *args, **kwargs: getattr(app, name)(*args, **kwargs)
        return
    with asyncio.Runner() as loop:
        yield lambda name, *args, **kwargs: loop.run(getattr(app, f"a{name}")(*args, **kwargs))
        loop.run(app.aclose())
