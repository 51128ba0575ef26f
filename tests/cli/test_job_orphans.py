"""`outlast job ID` says why a job stands still, for every orphan class that rows can show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast import Outlast
from outlast.ops import workers as worker_ops
from outlast.store import Store
from tests.cli.conftest import Commands, Program, patiently
from tests.store.jobs import end, put, put_and_take, set_all, table
from tests.store.test_audit import (
    CARD,
    asked_to_stop,
    due_and_forgotten,
    far_past_its_deadline,
    moment,
    owner_alive_and_unaware,
    owner_gone,
    past_its_expiry,
    ready_with_an_owner,
    running_for_ever,
    running_without_a_lease,
)
from tests.support import Database


def poisonous(store: Store, database: Database) -> None:
    held = put_and_take(store.run, max_crashes=1)
    set_all(database, f"lease_until = {moment(database, -1)}")
    from outlast.ops.reclaim import reclaim

    store.run(reclaim)
    assert held.max_crashes == 1


def last_life(store: Store, database: Database) -> None:
    store.run(worker_ops.register, CARD)
    put(store.run)
    set_all(database, "crashes = 2")


def broken(store: Store, database: Database) -> None:
    told = {"type": "Undecodable", "message": "its row cannot be read", "traceback": ""}
    end(store.run, put_and_take(store.run), "undecodable", error=told)


def unknown_to_all(store: Store, database: Database) -> None:
    store.run(worker_ops.register, CARD)
    put(store.run, task="tomorrow")


NOBODY = "No worker is alive"
CAUSES: list[tuple[Callable[[Store, Database], None], list[str]]] = [
    (owner_gone, ["Its worker is not listed any more", "Its lease expired", NOBODY]),
    (owner_alive_and_unaware, ["(pid 7 on h)", "Its lease expired", "poll of a live worker"]),
    (far_past_its_deadline, ["It ran past its timeout", "another worker ends it soon", NOBODY]),
    (running_for_ever, ["longer than any worker takes: the audit reclaims it", NOBODY]),
    (running_without_a_lease, ["no owner or no lease", "the audit releases it", NOBODY]),
    (asked_to_stop, ["It was asked to stop", "Its lease expired"]),
    (due_and_forgotten, ["(due ", "start one"]),
    (past_its_expiry, ["It expired", "will not be run"]),
    (ready_with_an_owner, [NOBODY]),
    (unknown_to_all, ["No live worker that serves 'default' knows the task 'tomorrow'"]),
    (last_life, ["It has crashed 2 workers, and one more crash would end it"]),
    (poisonous, ["1 lost worker (of 1)", "worker w1 stopped renewing"]),
    (broken, ["It is dead", "its row cannot be read"]),
]


@pytest.mark.parametrize(("make", "words"), CAUSES, ids=lambda value: getattr(
    value, "__name__", ""))  # fmt: skip
def test_the_cause_is_told(
    run: Commands,
    ol: Outlast,
    database: Database,
    make: Callable[[Store, Database], None],
    words: list[str],
) -> None:
    """R199: `owner-dead`, `forgotten`, `owner-hung`, `invisible`, `uncancelled`, `timer-lost`,
    `expired`, `unhandled`, `poison`, `undecodable`."""
    ol.migrate()
    make(ol.store, database)
    (job,) = ol.jobs()
    why = run("job", job.id, "--json").json["why"]
    assert [word for word in words if word not in why] == [], why
    shown = run("job", job.id).out
    assert [word for word in words if word not in shown] == [], shown


def test_a_dead_process_is_known_by_its_lock(
    run: Commands, ol: Outlast, database: Database, program: Program
) -> None:
    """R199, R027: long before its lease ends; and while it lives, nothing is said against it."""
    id = run("enqueue", "wait_for", "--queue", "slow", "--args", '{"file": "/never"}').out.strip()
    worker = program.worker(OUTLAST_LEASE="600", OUTLAST_RENEW_EVERY="100")
    patiently(lambda: ol.counts()["running"] == 1, message=worker.output)
    proven = f"SELECT 1 FROM {table(database, 'worker')} WHERE proof IS NOT NULL"
    patiently(lambda: database.rows(proven), message=worker.output)
    assert "free" not in ol.explain(id) and f"pid {worker.pid}" in ol.explain(id)
    worker.kill()
    told = patiently(lambda: next((why for why in [ol.explain(id)] if "lock is free" in why), None))
    assert "that process is dead" in told and "No worker is alive" in told
    assert "Its lease is good for" in told
    assert run("job", id, "--json").json["why"].startswith("It is running on worker")
