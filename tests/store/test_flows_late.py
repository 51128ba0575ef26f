"""Jobs that come after standing ones in a caller's own transaction, however long it is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from outlast import Job, Outlast
from outlast.model.flow import chain
from outlast.model.settings import StoreSettings
from outlast.ops import report
from outlast.ops.claim import ClaimRequest
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.flow_repair import link_deferred
from outlast.ops.reclaim import signs_of_loss
from outlast.store import open_store
from tests.store.conftest import Run
from tests.store.flowing import call, results, state, stuck
from tests.store.jobs import end, ending, put_and_take, take
from tests.support import Database


@contextmanager
def transaction(database: Database) -> Iterator[Any]:
    """A caller's own, which is open for as long as the block."""
    with database.connect() as connection:
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")


def come_after(app: Outlast, database: Database, *jobs: Any, **said: Any) -> Job:
    with transaction(database) as connection:
        (late,) = app.enqueue(call(9, after=list(jobs), queue="late", **said), conn=connection)
    assert late.state == "waiting"
    return late


def test_one_that_came_late_is_told_once_it_was_counted(
    run: Run, app: Outlast, database: Database
) -> None:
    """R064, R096: until then there is a sign of it; from then on whoever ends the other tells it,
    also by the quick way out."""
    held = put_and_take(run)
    late = come_after(app, database, held.id)
    assert run(signs_of_loss).unlinked
    assert run(link_deferred).healed == 1
    assert not run(signs_of_loss).unlinked
    assert run(link_deferred).found == 0, "once"
    assert state(run, late) == ["waiting"]
    run(finish_and_claim, [ending(held, result="7")], ClaimRequest("w1", "elsewhere", 1, 60.0))
    assert state(run, late) == ["ready"]
    assert results(run, late) == [7]


@pytest.mark.parametrize("when", ["succeeded", "finished"])
@pytest.mark.parametrize("outcome", ["succeeded", "permanent"])
def test_one_that_nobody_told_is_counted(
    run: Run, app: Outlast, database: Database, outcome: str, when: str
) -> None:
    """R064, R070, `unfired`: all that it comes after have ended before anybody knew of it."""
    held, other = put_and_take(run), put_and_take(run)
    late = come_after(app, database, held.id, other.id, when=when)
    end(run, held)
    end(run, other, outcome)
    assert state(run, late) == ["waiting"]
    starts = outcome == "succeeded" or when == "finished"
    counted = run(link_deferred)
    assert (counted.healed, counted.queues) == (1, {"late"} if starts else set())
    assert state(run, late) == ["ready" if starts else "dead"]
    assert stuck(database) == 0


def test_who_came_after_one_that_came_late_hears_of_its_end(
    run: Run, app: Outlast, database: Database
) -> None:
    """R064: a whole flow came late; what cannot start any more ends, down to its last."""
    held = put_and_take(run)
    with transaction(database) as connection:
        first, second = app.enqueue(chain(call(1, after=held.id), call(2)), conn=connection)
    end(run, held, "permanent")
    run(link_deferred)
    assert state(run, first, second) == ["dead", "dead"]


@pytest.mark.kinds("postgres")
def test_a_transaction_that_stays_open_holds_up_nobody(
    run: Run, app: Outlast, database: Database
) -> None:
    """R067: whoever has the standing job in hand ends it meanwhile; and what ended while nobody
    else could see the newcomer is counted when it has come."""
    held = put_and_take(run)
    hasty = StoreSettings(lock_timeout=0.2, statement_timeout=2.0)
    owner = open_store(database.url, database.schema, hasty)
    with transaction(database) as connection:
        (late,) = app.enqueue(call(9, after=held.id), conn=connection)
        end(owner.run, held, result="7")
        assert run(link_deferred).found == 0, "not there yet"
    owner.close()
    assert run(report.job, late.id).waits_for == 1
    assert run(link_deferred).queues == {"default"}
    assert [one.id for one in take(run, 9)] == [late.id]
    assert results(run, late) == [7]
