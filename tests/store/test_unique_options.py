"""Unique keys and debounce as callers say them: with a task, in a transaction, with many others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outlast import InvalidOption, Outlast, StoreBusy, StoreSettings, Task, chain, group
from outlast.ops.enqueue import enqueue
from outlast.ops.renew import renew
from tests.store.callers import Caller
from tests.store.jobs import column, end, make_due, take
from tests.support import Database

pytestmark = pytest.mark.kinds("sqlite", "postgres")


@pytest.fixture
def index(app: Outlast) -> Task[..., Any]:
    @app.task
    def index(doc: int = 0) -> None: ...

    return index


@pytest.mark.parametrize("unique", ["waiting", "active", "10m", 600, timedelta(minutes=10)])
def test_the_answer_is_the_winner(app: Outlast, index: Task[..., Any], unique: Any) -> None:
    """R242."""
    once = index.using(key="inbox-7", unique=unique)
    first = once.enqueue(1)
    assert once.enqueue(2).id == first.id
    jobs = app.enqueue(once.job(3), index.job(4), once.job(5))
    assert [job.id == first.id for job in jobs] == [True, False, True]
    assert first.key == "inbox-7" and app.job(first.id).args == {"doc": 1}


def test_a_debounced_call_replaces_the_one_before(app: Outlast, index: Task[..., Any]) -> None:
    """R242."""
    soon = index.using(key="doc-7", debounce="5s", max_wait=60)
    first, second = soon.enqueue(1), soon.enqueue(2)
    assert first.id == second.id and second.args == {"doc": 2}
    assert second.state == "scheduled"
    assert abs((second.run_at - second.created_at).total_seconds() - 5) < 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unique": "waiting"}, "unique needs key=…"),
        ({"debounce": 5}, "debounce needs key=…"),
        ({"key": "k", "unique": "often"}, "'waiting', 'active' or a period such as '10m'"),
        ({"key": "k", "unique": 0}, "must be a duration above 0 seconds"),
        ({"key": "k", "debounce": -1}, "must be a duration above 0 seconds"),
        ({"key": "k", "max_wait": 5}, "max_wait needs debounce"),
        ({"key": "k", "unique": "active", "max_wait": 5}, "max_wait needs debounce"),
        ({"key": "k", "debounce": 5, "max_wait": 4}, "max_wait must be at least debounce"),
        ({"key": "k", "debounce": 5, "unique": "active"}, "cannot be given together with debounce"),
        ({"key": "k", "debounce": 5, "delay": 4}, "cannot be given together with delay or at"),
    ],
)
def test_bad_options_are_refused(
    app: Outlast, index: Task[..., Any], options: Any, said: str
) -> None:
    app.migrate()
    with pytest.raises(InvalidOption, match=said):
        index.using(**options).enqueue(1)
    assert app.jobs() == []


def test_inside_flows_it_is_refused(app: Outlast, index: Task[..., Any]) -> None:
    app.migrate()
    once = index.using(key="k", unique="waiting")
    first = index.job(1)
    for plan in (
        [chain(index.job(1), once.job(2))],
        [group(once.job(1), index.job(2)).then(index.job(3))],
        [first, once.using(after=first).job(2)],
        [one := once.job(1), index.using(after=one).job(2)],
    ):
        with pytest.raises(InvalidOption, match="cannot be used inside flows"):
            app.enqueue(*plan)
    assert app.jobs() == []
    with pytest.raises(InvalidOption, match="cannot have a key"):
        index.using(on_success=once.job(1)).enqueue(1)
    with pytest.raises(InvalidOption, match="belong to a job"):
        app.task(unique="waiting")(lambda: None)  # type: ignore[call-arg]


@pytest.mark.parametrize("unique", ["waiting", "active", "10m"])
def test_a_key_taken_in_a_transaction_is_free_again_when_that_is_rolled_back(
    app: Outlast, index: Task[..., Any], caller: Caller, unique: str
) -> None:
    once = index.using(key="k", unique=unique)
    lost = caller.enqueue(app, once.job(1))[0]
    assert caller.enqueue(app, once.job(2))[0].id == lost.id
    caller.rollback()
    kept = caller.enqueue(app, once.job(3))[0]
    caller.commit()
    assert kept.id != lost.id and once.enqueue(4).id == kept.id
    assert len(app.jobs()) == 1


@pytest.mark.kinds("postgres")
def test_a_waiting_job_does_not_start_before_its_caller_commits(
    app: Outlast, index: Task[..., Any], caller: Caller
) -> None:
    """The job that stands for a call sees what the call's transaction wrote."""
    once = index.using(key="k", unique="waiting")
    first = once.enqueue(1)
    assert caller.enqueue(app, once.job(2))[0].id == first.id
    assert once.enqueue(3).id == first.id  # others are not held up
    assert take(app.store.run) == []
    caller.commit()
    assert [claim.id for claim in take(app.store.run)] == [first.id]


@pytest.mark.kinds("sqlite")
def test_a_waiting_job_on_sqlite_does_not_start_before_its_caller_commits(
    app: Outlast, index: Task[..., Any], caller: Caller, database: Database
) -> None:
    """Although the caller's connection has written nothing so far, and no transaction is open."""
    once = index.using(key="k", unique="waiting")
    first = once.enqueue(1)
    assert caller.enqueue(app, once.job(2))[0].id == first.id
    impatient = Outlast(database.url, settings=StoreSettings(lock_timeout=0.2))
    with pytest.raises(StoreBusy):
        take(impatient.store.run)
    impatient.close()
    caller.commit()
    assert [claim.id for claim in take(app.store.run)] == [first.id]


@pytest.mark.kinds("postgres")
def test_an_active_job_is_renewed_and_finished_beside_its_callers(
    app: Outlast, index: Task[..., Any], caller: Caller, database: Database
) -> None:
    once = index.using(key="k", unique="active")
    once.enqueue(1)
    (claim,) = take(app.store.run)
    caller.enqueue(app, once.job(2))
    # One that was claimed while a call waited for it may be held by that call for as long.
    caller.execute(f'SELECT 1 FROM "{database.schema}".job FOR KEY SHARE')
    renewed = app.store.run(renew, "w1", {claim.id: claim.fence}, 60.0)
    assert renewed.kept == {claim.id}
    end(app.store.run, claim)
    caller.commit()
    assert column(database, "state") == ["succeeded"]


def test_a_call_that_is_sent_again_makes_no_second_job(app: Outlast, index: Task[..., Any]) -> None:
    """Its answer was lost, and the job has started since."""
    jobs = [index.using(key="k", unique="waiting").job(1).new_job()]
    first = app.store.run(enqueue, jobs)
    take(app.store.run)
    assert [job.id for job in app.store.run(enqueue, jobs)] == [job.id for job in first]
    assert len(app.jobs()) == 1


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("options", [{"debounce": 5}, {"unique": "waiting"}])
def test_a_call_that_is_sent_again_does_not_undo_a_later_one(
    app: Outlast, index: Task[..., Any], database: Database, options: Any, started: bool
) -> None:
    """R004: its answer was lost, and another call of the key came in between."""
    once = index.using(key="k", **options)
    jobs = [once.job(1).new_job()]
    (first,) = app.store.run(enqueue, jobs)
    if started:
        make_due(database)
        take(app.store.run)
    later = once.enqueue(2)
    (again,) = app.store.run(enqueue, jobs)
    assert again.id == first.id
    assert app.job(later.id).args == later.args
