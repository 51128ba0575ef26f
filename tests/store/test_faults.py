"""Errors, locks and crowds: what fails leaves nothing behind, and what can be retried is."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from outlast import StoreBusy, StoreError, TooLate
from outlast.model.settings import StoreSettings
from outlast.ops import duties, job_actions, report, retention
from outlast.ops import workers as worker_ops
from outlast.ops.claim import ClaimRequest, claim, poll, promote
from outlast.ops.enqueue import enqueue, notify_queues
from outlast.ops.explain import explain
from outlast.ops.finish import finish
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.operation import Op, Pipeline, Statement
from outlast.ops.reclaim import reclaim, signs_of_loss
from outlast.ops.renew import renew
from outlast.ops.workers import deregister
from outlast.store import Store, open_store
from outlast.store.statements import Query, queries
from tests.store.conftest import Run
from tests.store.crowd import all_at_once
from tests.store.jobs import end, end_leases, ending, new, put, put_and_take, table, take
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)

WANTED = ClaimRequest("w1", "default", 2, 60.0)


def every_operation(run: Run, database: Database) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Each operation with arguments that make it say all that it can say."""
    put(run, key="k")
    held = [put_and_take(run, queue=f"q{n}") for n in range(4)]
    dead = put_and_take(run, queue="dead")
    end(run, dead, "permanent")
    old = put_and_take(run, queue="old")
    end(run, old)
    put(run, delay=60.0)
    lost = put_and_take(run, queue="lost")
    end_leases(database, f"id = '{lost.id}'")
    stale = held[3]._replace(fence=99)
    event = {"n": 0, "job": held[0].id, **held[0].guard, "kind": "log", "data": "1"}
    ends = [ending(held[0], "failed"), ending(held[1], jobs=(new(key="j"),)), ending(stale)]
    every: list[tuple[Callable[..., Any], Any]] = [
        (enqueue, ([new(), new(key="k")],)),
        (notify_queues, ("channel", ["default"])),
        (claim, (WANTED,)),
        (poll, ()),
        (promote, ()),
        (finish_and_claim, ([ending(held[2]), ending(stale)], WANTED)),
        (finish, (ends, [event])),
        (renew, ("w1", {held[3].id: held[3].fence}, 60.0)),
        (signs_of_loss, ()),
        (reclaim, ()),
        (deregister, ("w1",)),
        (job_actions.cancel, (held[3].id, "ann", "")),
        (job_actions.redrive_one, (dead.id, "ann")),
        (job_actions.set_paused, ("other", True, "ann")),
        (duties.take_duty, ("a duty", 60.0, "w1")),
        (duties.report_duty, ("a duty", duties.DutyTally())),
        (duties.record_duties, ({"a net": duties.DutyTally()}, 60.0, "w1")),
        (duties.expire, ()),
        (retention.prune, ("succeeded", 0.0, 10)),
        (retention.prune_workers, (0.0,)),
        (retention.prune_incidents, (0.0, 10)),
        (worker_ops.heartbeat, ("w1", 0, "working")),
        (explain, (dead.id, list)),
        (report.history, (dead.id,)),
        (report.unhandled, ()),
    ]
    return {operation.__name__: (operation, args) for operation, args in every}


def spoken(operation: Callable[..., Op[Any]], said: list[str]) -> Callable[..., Op[Any]]:
    """The operation, with the names of its statements written down."""

    def listened(*args: Any) -> Op[Any]:
        inner = operation(*args)
        step = inner.send(None)
        while True:
            statements = step if isinstance(step, Pipeline) else (step,)
            said.extend(one.name for one in statements if isinstance(one, Statement))
            try:
                step = inner.send((yield step))
            except StopIteration as stop:
                return stop.value

    return listened


def test_an_error_in_any_statement_leaves_nothing_behind(
    run: Run, store: Store, database: Database
) -> None:
    """R173: rolled back at once, the connection clean for the next, nothing idle in transaction."""
    whole, each = store.queries, statements(store)
    jobs = f"SELECT * FROM {table(database, 'job')} ORDER BY id"
    broken = 0
    for name, (operation, args) in every_operation(run, database).items():
        before, said = database.rows(jobs), list[str]()
        store.queries = {key: _broken(query) for key, query in each.items()}
        with pytest.raises(StoreError):
            run(spoken(operation, said), *args)
        reached = 0
        while len(said) > reached:  # now let it get one statement further, until it gets through
            reached = len(said)
            # What a turn asks afterwards (who lost?) is a question of its own: it has committed.
            if said[-1] != "finished_claims" or name != "finish_and_claim":
                assert database.rows(jobs) == before, f"{name}: {said[-1]} left a change"
            assert _idle_in_transaction(database) == [], f"{name}: {said[-1]}"
            store.queries = {
                key: query if key in said else _broken(query) for key, query in each.items()
            }
            said.clear()
            broken += 1
            try:
                run(spoken(operation, said), *args)
            except StoreError:
                continue
            break
        store.queries = whole
    assert broken > 40


@pytest.mark.kinds("postgres", "pgbouncer")
@pytest.mark.parametrize("how", ["lock", "statement"])
def test_a_wait_ends_at_its_timeout(database: Database, how: str) -> None:
    """R175, R087: a held table lock, or a statement that does not end, costs no more than that."""
    settings = StoreSettings(lock_timeout=0.3, statement_timeout=0.6)
    store = open_store(database.url, database.schema, settings)
    put(store.run)
    with database.connect() as other, other.transaction():
        if how == "lock":
            other.execute("LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
        else:
            slow = replace(store.queries["poll"], sql="SELECT NULL FROM pg_sleep(30)")
            store.queries = statements(store) | {"poll": slow}
        for operation, args in ((poll, ()), (claim, (WANTED,)), (enqueue, ([new()],)))[
            : 1 + 2 * (how == "lock")
        ]:
            began = time.monotonic()
            with pytest.raises(StoreBusy):
                store.run(operation, *args)
            assert 0.25 < time.monotonic() - began < 5
    assert len(take(store.run)) == 1, "and then it works again"
    store.close()


@pytest.mark.kinds("sqlite")
def test_a_write_waits_for_another_writer_until_its_timeout(database: Database) -> None:
    """R175: and reads do not wait at all."""
    store = open_store(database.url, database.schema, StoreSettings(lock_timeout=0.3))
    put(store.run)
    with database.connect() as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreBusy):
            store.run(claim, WANTED)
        assert 0.25 < time.monotonic() - began < 5
        assert store.run(poll).queues == ["default"]
        other.execute("ROLLBACK")
    assert len(take(store.run)) == 1
    store.close()


@pytest.mark.parametrize(
    "seconds", [1.5, pytest.param(300.0, marks=[pytest.mark.campaign, pytest.mark.timeout(900)])]
)
def test_a_mixed_crowd_never_sees_a_deadlock(
    store: Store, database: Database, seconds: float
) -> None:
    """R174: cancel, bulk, sweep, redrive, prune, renew, finish and claim from 8 threads: no error
    reaches anyone."""
    store.run(enqueue, [new() for _ in range(200)])
    until = time.monotonic() + seconds
    done: Counter[str] = Counter()

    def goes_on() -> bool:
        enough = all(done[name] > 3 for name in ("finished", "bulk", "steered", "swept"))
        return time.monotonic() < until or not enough

    def work(n: int) -> None:
        luck = random.Random(n)
        while goes_on():
            held = take(store.run, 20, worker=f"w{n}", lease=luck.choice([0.001, 60.0]))
            luck.shuffle(held)
            store.run(renew, f"w{n}", {one.id: one.fence for one in held}, 0.01)
            outcomes = ["succeeded", "failed", "permanent", "released"]
            store.run(finish, [ending(one, luck.choice(outcomes)) for one in held])
            done["finished"] += len(held)

    def bulk(n: int) -> None:
        luck = random.Random(n)
        while goes_on():
            keys = luck.sample(range(200), 60)
            store.run(enqueue, [new(key=str(key) if key < 150 else None) for key in keys])
            done["bulk"] += 1

    def steer(n: int) -> None:
        luck = random.Random(n)
        while goes_on():
            ids = [one.id for one in store.run(report.jobs, report.Filter(), None, 200)]
            for id in luck.sample(ids, min(10, len(ids))):
                try:
                    store.run(job_actions.cancel, id, "ann", "")
                except TooLate:
                    continue
            luck.shuffle(ids)
            store.run(job_actions.redrive, ids, "ann")
            done["steered"] += 1

    def sweep(n: int) -> None:
        while goes_on():
            store.run(reclaim, 50)
            store.run(duties.expire)
            store.run(retention.prune, "succeeded", 1.0, 20)
            done["swept"] += 1

    roles = [work, work, work, bulk, bulk, steer, steer, sweep]
    all_at_once(8, lambda n: roles[n](n))


def statements(store: Store) -> dict[str, Query]:
    return queries(store.address.dialect, store.address.schema).all()


def _broken(query: Any) -> Any:
    return replace(query, sql="SELECT no_such_function()", parameters=())


def _idle_in_transaction(database: Database) -> list[Any]:
    if database.is_sqlite:
        with database.connect() as other:
            other.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")  # raises if anyone still holds the lock
            other.execute("ROLLBACK")
        return []
    return database.rows(
        "SELECT state, query FROM pg_stat_activity WHERE starts_with(state, 'idle in transaction')"
    )
