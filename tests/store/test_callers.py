"""The caller's own connection: a job exists if, and only if, the caller's transaction commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outlast import KeyConflict, Outlast, Task
from tests.store.async_callers import every_kind, sampled_kinds
from tests.store.callers import Caller
from tests.store.jobs import states, take
from tests.support import Database


@pytest.fixture
def work(app: Outlast, database: Database) -> Task[[int], None]:
    """A task, its tables, and a table of the caller's own."""

    @app.task
    def work(n: int) -> None: ...

    app.store.ready()
    with database.connect() as connection:
        where = "" if database.is_sqlite else "public."
        connection.execute(f"CREATE TABLE IF NOT EXISTS {where}business (note text)")
        connection.execute("DELETE FROM business")
    return work


@pytest.fixture
def caller(request: pytest.FixtureRequest, database: Database, work: Any) -> Iterator[Caller]:
    made = request.param(database)
    yield made
    made.close()


@every_kind
def test_a_commit_makes_the_job(
    caller: Caller, app: Outlast, work: Any, database: Database
) -> None:
    """R002: together with the caller's own row; not seen by anyone before, claimable after."""
    caller.write()
    (job,) = caller.enqueue(app, work.job(1))
    assert (job.state, job.args) == ("ready", {"n": 1})
    assert states(database) == [], "nothing is committed early"
    caller.commit()
    assert [one.id for one in take(app.store.run, 9)] == [job.id]
    assert database.rows("SELECT note FROM business") == [("x",)]


@sampled_kinds
@pytest.mark.parametrize("first", ["write", "enqueue"])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_rollback_leaves_no_job(
    caller: Caller, app: Outlast, work: Any, database: Database, first: str, key: str | None
) -> None:
    """R002: whatever came first in the transaction, with and without a key."""
    if first == "write":
        caller.write()
    caller.enqueue(app, work.using(key=key).job(1), work.job(2))
    if first == "enqueue":
        caller.write()
    assert states(database) == [], "nothing is committed early"
    caller.rollback()
    assert states(database) == []
    assert database.rows("SELECT note FROM business") == []


@sampled_kinds
def test_a_refused_call_leaves_the_transaction_as_it_was(
    caller: Caller, app: Outlast, work: Any, database: Database
) -> None:
    """R002, R003: a conflict undoes its own call and nothing else; the caller goes on."""
    (holder,) = app.enqueue(work.using(key="k").job(1))
    caller.write()
    (kept,) = caller.enqueue(app, work.job(2))
    with pytest.raises(KeyConflict):
        caller.enqueue(app, work.job(3), work.using(key="k").job(4))
    (same,) = caller.enqueue(app, work.using(key="k").job(1))
    assert same.id == holder.id
    (mine,) = caller.enqueue(app, work.using(key="mine").job(5))
    caller.commit()
    made = {one.id for one in take(app.store.run, 9)}
    assert made == {holder.id, kept.id, mine.id}
    assert database.rows("SELECT note FROM business") == [("x",)]


@sampled_kinds
def test_many_jobs_and_many_transactions_on_one_connection(
    caller: Caller, app: Outlast, work: Any, database: Database
) -> None:
    """R002, R008"""
    calls = [work.using(key=f"k{n}" if n % 2 else None).job(n) for n in range(200)]
    assert [one.args["n"] for one in caller.enqueue(app, *calls)] == list(range(200))
    caller.commit()
    assert len(states(database)) == 200
