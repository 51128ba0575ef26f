"""Cancel, cancel a flow, redrive: in the caller's own transaction, if and only if it commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from outlast import JobNotFound, Outlast, TooLate, WrongConnection, chain, group
from outlast.model.errors import FlowNotFound, NoDatabase
from outlast.model.ids import new_job_id
from outlast.ops.cancel_flow import cancel_page, unfinished_cancels
from outlast.ops.cancel_requests import apply_cancel_requests
from outlast.ops.flow_repair import link_deferred
from outlast.ops.reclaim import signs_of_loss
from outlast.ops.renew import renew
from tests.store.async_callers import sampled_kinds
from tests.store.callers import Caller
from tests.store.jobs import end, put, put_and_take, states, table, take
from tests.support import Database, eventually


@pytest.fixture(autouse=True)
def tables(app: Outlast) -> None:
    app.store.ready()


@pytest.fixture
def caller(request: pytest.FixtureRequest, database: Database, app: Outlast) -> Iterator[Caller]:
    app.store.ready()
    made = request.param(database)
    yield made
    made.close()


def dead(app: Outlast) -> str:
    held = put_and_take(app.store.run)
    end(app.store.run, held, "permanent")
    return held.id


@sampled_kinds
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_cancel_happens_if_the_transaction_commits(
    caller: Caller, app: Outlast, database: Database, ending: str
) -> None:
    """R114, R002: a queued job; others see it queued until then."""
    (job,) = put(app.store.run)
    assert caller.act(app, "cancel", job.id).state == "cancelled"
    assert states(database) == ["ready"], "nothing is committed early"
    getattr(caller, ending)()
    committed = ending == "commit"
    assert states(database) == ["cancelled" if committed else "ready"]
    assert [event.kind for event in app.history(job.id)[1]] == ["cancel"] * committed
    assert len(take(app.store.run)) == (not committed)


@sampled_kinds
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_running_job_is_asked_to_stop_if_the_transaction_commits(
    caller: Caller, app: Outlast, ending: str
) -> None:
    """R115, R002: the request is stored, and any worker applies it after the commit."""
    held = put_and_take(app.store.run)
    asked = caller.act(app, "cancel", held.id)
    assert (asked.state, asked.cancelling) == ("running", True)
    if not app.store.address.path:  # on SQLite the caller's transaction keeps every writer out
        assert app.store.run(apply_cancel_requests).found == 0
        assert app.store.run(renew, "w1", {held.id: held.fence}, 60.0).kept == {held.id}
    getattr(caller, ending)()
    committed = ending == "commit"
    assert app.store.run(signs_of_loss).cancels == committed
    assert app.store.run(apply_cancel_requests).healed == committed
    assert app.job(held.id).cancelling == committed
    assert [event.kind for event in app.history(held.id)[1]] == ["cancel"] * committed
    assert not app.store.run(signs_of_loss).cancels


@sampled_kinds
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_redrive_happens_if_the_transaction_commits(
    caller: Caller, app: Outlast, database: Database, ending: str
) -> None:
    """R048, R002"""
    id = dead(app)
    assert caller.act(app, "retry", id).state == "ready"
    assert states(database) == ["dead"]
    getattr(caller, ending)()
    committed = ending == "commit"
    assert [one.id for one in take(app.store.run)] == [id] * committed
    assert ("redrive" in [event.kind for event in app.history(id)[1]]) == committed


@sampled_kinds
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_flow_is_cancelled_if_the_transaction_commits(
    caller: Caller, app: Outlast, database: Database, ending: str
) -> None:
    """R114, R002: no queued job ever starts; running ones are left to workers, after the commit."""

    @app.task
    def work(n: int) -> None: ...

    jobs = app.enqueue(group(*(work.job(n) for n in range(5))).then(work.job(9)))
    flow = jobs[0].flow
    assert flow is not None
    (running,) = take(app.store.run)
    caller.act(app, "cancel_flow", flow)
    assert app.flow(flow).cancelled_at is None
    getattr(caller, ending)()
    if ending == "rollback":
        assert sorted(states(database)) == [*["ready"] * 4, "running", "waiting"]
        assert not app.job(running.id).cancelling
        return
    assert app.flow(flow).cancelled_at is not None
    assert sorted(states(database)) == [*["cancelled"] * 5, "running"]
    ((_, why),) = app.store.run(unfinished_cancels)
    app.store.run(cancel_page, flow, why)
    assert app.job(running.id).cancelling


@sampled_kinds
def test_a_refused_action_leaves_the_transaction_as_it_was(
    caller: Caller, app: Outlast, database: Database
) -> None:
    """R117: what is too late or unknown raises, and the caller goes on."""
    held = put_and_take(app.store.run)
    end(app.store.run, held)
    (kept,) = put(app.store.run)
    caller.act(app, "cancel", kept.id)
    for verb in ("cancel", "retry"):
        with pytest.raises(TooLate, match="succeeded"):
            caller.act(app, verb, held.id)
        with pytest.raises(JobNotFound):
            caller.act(app, verb, new_job_id())
    with pytest.raises(FlowNotFound):
        caller.act(app, "cancel_flow", new_job_id())
    caller.commit()
    assert app.job(kept.id).state == "cancelled"


@sampled_kinds
def test_a_job_is_enqueued_and_another_cancelled_in_one_transaction(
    caller: Caller, app: Outlast, database: Database
) -> None:
    """R002, R114: a follower of the cancelled job ends with it, in the same commit."""

    @app.task
    def work(n: int) -> None: ...

    first, second = app.enqueue(chain(work.job(1), work.job(2)))
    (instead,) = caller.enqueue(app, work.job(3))
    caller.act(app, "cancel", first.id)
    assert sorted(states(database)) == ["ready", "waiting"]
    caller.commit()
    found = [app.job(one.id).state for one in (first, second, instead)]
    assert found == ["cancelled", "dead", "ready"]


def test_actions_refuse_what_is_no_connection_of_this_database(
    app: Outlast, database: Database, tmp_path: Any
) -> None:
    """R002: instead of acting on their own."""
    import sqlite3

    (job,) = put(app.store.run)
    for verb in ("cancel", "retry", "cancel_flow"):
        with pytest.raises(WrongConnection, match="give a connection or session of sqlite3"):
            getattr(app, verb)(job.id, conn=object())
        with (
            closing(sqlite3.connect(tmp_path / "other.db")) as other,
            pytest.raises(WrongConnection, match="in one database"),
        ):
            getattr(app, verb)(job.id, conn=other)
    assert states(database) == ["ready"]


@pytest.mark.kinds("sqlite")
def test_an_action_creates_no_database(tmp_path: Any) -> None:
    """A mistyped address is an error, with a connection of the caller's own as well."""
    import sqlite3

    with (
        Outlast(f"sqlite:///{tmp_path}/none.db") as missing,
        closing(sqlite3.connect(tmp_path / "mine.db")) as mine,
        pytest.raises(NoDatabase),
    ):
        missing.cancel(new_job_id(), conn=mine)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.kinds("postgres")
def test_nothing_is_announced_before_the_commit(app: Outlast, database: Database) -> None:
    """R114: the notification of a redrive is part of the transaction."""
    import psycopg

    failed = dead(app)
    with (
        database.connect() as listener,
        psycopg.connect(database.direct_url) as mine,
    ):
        listener.execute(f'LISTEN "{app.store.channel}"')

        def heard() -> list[str]:
            return [one.payload for one in listener.notifies(timeout=0.3)]

        app.retry(failed, conn=mine)
        assert heard() == []
        mine.rollback()
        assert heard() == []
        app.retry(failed, conn=mine)
        mine.commit()
        assert eventually(heard) == ["default"]


@pytest.mark.kinds("postgres")
def test_jobs_that_another_transaction_holds_are_cancelled_after_the_commit(
    app: Outlast, database: Database
) -> None:
    """R114: a caller's cancel of a flow waits for nobody; the flow stays marked as unfinished, and
    workers go on with it."""
    import psycopg

    @app.task
    def work(n: int) -> None: ...

    jobs = app.enqueue(group(*(work.job(n) for n in range(3))))
    flow = jobs[0].flow
    assert flow is not None
    with database.connect() as other, psycopg.connect(database.direct_url) as mine:
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", [jobs[1].id])
        app.cancel_flow(flow, conn=mine)
        mine.commit()
        assert sorted(states(database)) == ["cancelled", "cancelled", "ready"]
        other.execute("COMMIT")
    ((unfinished, why),) = app.store.run(unfinished_cancels)
    assert unfinished == flow
    app.store.run(cancel_page, flow, why)
    assert states(database) == ["cancelled"] * 3


def test_a_request_that_comes_too_late_changes_nothing(app: Outlast, database: Database) -> None:
    """R117: the job ended before any worker applied it; a second request is one cancel."""
    ended, twice = put_and_take(app.store.run), put_and_take(app.store.run)
    with closing(Opened(database)) as mine:
        app.cancel(ended.id, conn=mine.connection)
        app.cancel(twice.id, "not needed", conn=mine.connection)
        app.cancel(twice.id, conn=mine.connection)
        mine.connection.commit()
    end(app.store.run, ended)
    done = app.store.run(apply_cancel_requests)
    assert (done.found, done.healed, done.skipped) == (3, 2, 1)
    assert app.job(ended.id).state == "succeeded"
    (event,) = app.history(twice.id)[1]
    assert event.data["reason"] == "not needed"


@pytest.mark.kinds("postgres")
def test_a_locked_job_holds_up_no_other_cancel(app: Outlast, database: Database) -> None:
    """R115: its request is left for the next pass."""
    import psycopg

    locked, free = put_and_take(app.store.run), put_and_take(app.store.run)
    with psycopg.connect(database.direct_url) as mine:
        for held in (locked, free):
            app.cancel(held.id, conn=mine)
        mine.commit()
    with database.connect() as other:
        other.execute("BEGIN")
        name = table(database, "job")
        other.execute(f"SELECT 1 FROM {name} WHERE id = %s FOR UPDATE", (locked.id,))
        done = app.store.run(apply_cancel_requests)
        other.execute("ROLLBACK")
    assert (done.found, done.healed) == (1, 1)
    assert (app.job(free.id).cancelling, app.job(locked.id).cancelling) == (True, False)
    again = app.store.run(apply_cancel_requests)
    assert (again.found, again.healed) == (1, 1)
    assert app.job(locked.id).cancelling


@pytest.mark.kinds("postgres")
def test_a_redrive_locks_no_running_prerequisite(app: Outlast, database: Database) -> None:
    """R214, R092: it ends while the caller's transaction is open, and is counted after that."""
    import psycopg

    @app.task
    def work(n: int) -> None: ...

    *_, last = app.enqueue(group(work.job(1), work.job(2)).then(work.job(3)))
    lost, running = take(app.store.run, 2)
    end(app.store.run, lost, "permanent")
    assert app.job(last.id).state == "dead"
    with psycopg.connect(database.direct_url) as mine:
        app.retry(lost.id, conn=mine)
        end(app.store.run, running)
        mine.commit()
    assert app.store.run(signs_of_loss).unlinked
    app.store.run(link_deferred)
    (again,) = take(app.store.run, 9)
    assert again.id == lost.id
    end(app.store.run, again)
    assert [one.id for one in take(app.store.run, 9)] == [last.id]


class Opened(Caller):
    """A connection as applications have it, on either database."""

    def open(self) -> Any:
        if self.database.is_sqlite:
            import sqlite3

            return sqlite3.connect(self.database.path)
        import psycopg

        return psycopg.connect(self.database.direct_url)
