"""The audit: every orphan class that rows can show is found, healed once, and counted.

Rows are made here as no operation of ours makes them, behind the back of the constraints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.model.orphans import DANGLING, ORPHANS, Fate
from outlast.ops import audit, duties, job_actions
from outlast.ops import workers as worker_ops
from outlast.ops.audit import Check, find
from outlast.ops.finish import finish
from outlast.ops.reclaim import decide_by_row
from outlast.ops.renew import renew
from outlast.ops.report import duties as all_duties
from outlast.ops.report import history, job, workers
from outlast.store import Store
from outlast.store.dialects import SQLITE
from outlast.store.statements import queries
from tests.store.conftest import Run
from tests.store.jobs import (
    column,
    end,
    end_leases,
    ending,
    put,
    put_and_take,
    set_all,
    spoil,
    states,
    table,
    take,
)
from tests.support import Database
from tests.support.calm import seasoned
from tests.support.maintenance import healer_of

pytestmark = pytest.mark.kinds("sqlite", "postgres")

CARD = {
    "id": "w1", "host": "h", "pid": 7, "queues": None, "tasks": '["work"]', "concurrency": 3,
    "version": "1", "lease": 15.0,
}  # fmt: skip


def moment(database: Database, seconds: float) -> str:
    """So many seconds from now, in SQL."""
    if database.is_sqlite:
        return f"(julianday('now') - 2440587.5) * 86400.0 + {seconds}"
    return f"now() + interval '{seconds} seconds'"


def force(database: Database, change: str, where: str = "true") -> None:
    """Change rows as no constraint allows."""
    jobs = table(database, "job")
    with database.connect() as connection:
        if database.is_sqlite:
            connection.execute("PRAGMA ignore_check_constraints = ON")
        else:
            for name in ("job_owned", "job_owner"):
                connection.execute(f"ALTER TABLE {jobs} DROP CONSTRAINT IF EXISTS {name}")
        connection.execute(f"UPDATE {jobs} SET {change} WHERE {where}")


def audited(app: Outlast, store: Store) -> dict[str, tuple[int, int, int, int]]:
    """One pass, and what each class counted in it: found, healed, skipped, failed."""
    before = {duty.name: duty for duty in store.run(all_duties)}

    async def once() -> None:
        healer = seasoned(healer_of(app, store))
        await healer.duties.duty("audit", healer.auditor.audit, 0.0)()
        await store.aclose()

    asyncio.run(once())
    counted = {}
    for duty in store.run(all_duties):
        was = before.get(duty.name)
        now = (duty.found, duty.healed, duty.skipped, duty.failed)
        then = (was.found, was.healed, was.skipped, was.failed) if was else (0, 0, 0, 0)
        counted[duty.name] = tuple(a - b for a, b in zip(now, then, strict=True))
    return {name: tally for name, tally in counted.items() if any(tally)}  # type: ignore[misc]


ONE = (1, 1, 0, 0)


def test_a_healthy_database_gives_the_audit_nothing_to_do(
    app: Outlast, store: Store, database: Database
) -> None:
    """R086, R089: it leaves every row alone, and says that it was here."""
    store.run(worker_ops.register, CARD)
    put(store.run, 5)
    put(store.run, 2, delay=60.0, expires_in=90.0)
    take(store.run, 2)
    end(store.run, put_and_take(store.run, queue="q", key="k"))
    everything = f"SELECT * FROM {table(database, 'job')} ORDER BY id"
    before = database.rows(everything)
    assert audited(app, store) == {}
    assert database.rows(everything) == before
    done = {duty.name: duty for duty in store.run(all_duties)}
    assert all(duty.succeeded_at and duty.error is None for duty in done.values())
    assert {"audit", "owner-dead", "invisible", "leaked-slot", *DANGLING} <= done.keys()


def running_without_a_lease(store: Store, database: Database) -> None:
    put_and_take(store.run)
    force(database, "lease_until = NULL")


def running_without_an_owner(store: Store, database: Database) -> None:
    put_and_take(store.run)
    force(database, "worker = NULL")


def ready_with_an_owner(store: Store, database: Database) -> None:
    put(store.run)
    force(database, "worker = 'w1'")


def scheduled_with_a_lease(store: Store, database: Database) -> None:
    put(store.run, delay=60.0)
    force(database, f"lease_until = {moment(database, 60)}")


def running_for_ever(store: Store, database: Database) -> None:
    put_and_take(store.run)
    set_all(database, f"lease_until = {moment(database, 9999)}")


def owner_gone(store: Store, database: Database) -> None:
    put_and_take(store.run)
    set_all(database, f"lease_until = {moment(database, -90)}")


def owner_alive_and_unaware(store: Store, database: Database) -> None:
    store.run(worker_ops.register, CARD)
    owner_gone(store, database)


def asked_to_stop(store: Store, database: Database) -> None:
    held = put_and_take(store.run)
    store.run(job_actions.cancel, held.id, "ann", "")
    set_all(database, f"lease_until = {moment(database, -90)}")


def far_past_its_deadline(store: Store, database: Database) -> None:
    put_and_take(store.run, timeout=5.0)
    set_all(database, f"started_at = {moment(database, -90)}")


def due_and_forgotten(store: Store, database: Database) -> None:
    put(store.run, delay=60.0)
    set_all(database, f"run_at = {moment(database, -90)}")


def past_its_expiry(store: Store, database: Database) -> None:
    put(store.run, expires_in=60.0)
    set_all(database, f"expires_at = {moment(database, -90)}")


def kept_for_too_long(store: Store, database: Database) -> None:
    end(store.run, put_and_take(store.run, key="k"))
    set_all(database, f"finished_at = {moment(database, -999_999)}")


CLASSES: list[tuple[str, Callable[[Store, Database], None], list[str]]] = [
    ("invisible", running_without_a_lease, ["ready"]),
    ("invisible", running_without_an_owner, ["ready"]),
    ("invisible", ready_with_an_owner, ["ready"]),
    ("invisible", scheduled_with_a_lease, ["scheduled"]),
    ("owner-dead", running_for_ever, ["ready"]),
    ("owner-dead", owner_gone, ["ready"]),
    ("forgotten", owner_alive_and_unaware, ["ready"]),
    ("uncancelled", asked_to_stop, ["cancelled"]),
    ("owner-hung", far_past_its_deadline, ["scheduled"]),
    ("timer-lost", due_and_forgotten, ["ready"]),
    ("expired", past_its_expiry, ["cancelled"]),
    ("leaked-slot", kept_for_too_long, []),
]


@pytest.mark.parametrize(("name", "make", "after"), CLASSES, ids=lambda value: getattr(
    value, "__name__", value if isinstance(value, str) else ""))  # fmt: skip
def test_every_class_is_found_healed_once_and_counted(
    app: Outlast,
    store: Store,
    database: Database,
    name: str,
    make: Callable[[Store, Database], None],
    after: list[str],
) -> None:
    """R063, R075, R089: `invisible`, `owner-dead`, `forgotten`, `uncancelled`, `owner-hung`,
    `timer-lost`, `expired`, `leaked-slot`: one found, one healed, and nothing in the next pass."""
    make(store, database)
    assert audited(app, store) == {name: ONE, "audit": ONE}
    assert states(database) == after
    owned = column(database, "worker", "WHERE state IN ('ready', 'scheduled', 'running')")
    assert set(owned) <= {None}
    assert audited(app, store) == {}


def test_what_the_dead_left_lying_is_cleared_away(
    app: Outlast, store: Store, database: Database
) -> None:
    """R088: records of jobs that are gone, and cards of workers that are; what lives keeps its
    records."""
    gone, stays = put_and_take(store.run), put_and_take(store.run)
    for held in (gone, stays):
        store.run(job_actions.record_action, "seen", [held.id], {})
        end(store.run, held, "failed")
    store.run(worker_ops.register, CARD)
    store.run(worker_ops.register, CARD | {"id": "w2"})
    with database.connect() as connection:
        connection.execute(f"DELETE FROM {table(database, 'job')} WHERE id = '{gone.id}'")
        connection.execute(
            f"UPDATE {table(database, 'worker')} SET seen_at = {moment(database, -9999)}"
            " WHERE id = 'w2'"
        )
    counted = audited(app, store)
    assert counted == {"left-behind": (2, 2, 0, 0), "silent-worker": ONE, "audit": (3, 3, 0, 0)}
    assert [len(part) for part in store.run(history, gone.id)] == [0, 0]
    assert [len(part) for part in store.run(history, stays.id)] == [1, 1]
    assert [worker.id for worker in store.run(workers)] == ["w1"]


def test_a_unique_key_of_a_job_that_is_gone_is_cleared_away(
    app: Outlast, store: Store, database: Database
) -> None:
    """R088, R242: one that was held while its job was pruned; what stands keeps its key."""

    @app.task
    def send(n: int) -> None: ...

    unique = send.using(unique="active")
    gone, stays = app.enqueue(*[unique.using(key=f"k{n}").job(n) for n in range(2)])
    with database.connect() as connection:
        connection.execute(f"DELETE FROM {table(database, 'job')} WHERE id = '{gone.id}'")
    assert audited(app, store) == {"left-behind": ONE, "audit": ONE}
    held = database.rows(f"SELECT CAST(job AS text) FROM {table(database, 'unique_key')}")
    assert held == [(stays.id,)]
    assert audited(app, store) == {}


def test_a_row_that_cannot_be_healed_keeps_no_other_from_it(
    app: Outlast, store: Store, database: Database
) -> None:
    """R082: in the audit too: 3 of 50 fail, 47 are healed."""
    made = put(store.run, 50, delay=60.0)
    set_all(database, f"run_at = {moment(database, -90)}")
    bad = f"id IN ('{made[0].id}', '{made[20].id}', '{made[49].id}')"
    spoil(database, bad, "running", "scheduled")
    assert audited(app, store)["timer-lost"] == (50, 47, 0, 3)
    assert states(database).count("ready") == 47


def test_nobody_who_came_back_is_touched(store: Store, database: Database) -> None:
    """R080: between the finding and the repair a claim was renewed, ended, or claimed anew."""
    put(store.run, 4)
    held = take(store.run, 4)
    set_all(database, f"lease_until = {moment(database, -90)}")
    (lost,) = [check for check in some_checks() if check.finder == "find_owner_dead"]
    found = store.run(lost.find)
    assert {stray.id for stray in found} == {one.id for one in held}
    assert all(stray.seconds > 80 for stray in found)
    store.run(renew, "w1", {held[0].id: held[0].fence}, 60.0)
    store.run(finish, [ending(held[1])])
    store.run(finish, [ending(held[2], "released")])
    (again,) = take(store.run, worker="w2")
    assert store.run(lost.repair, [one.id for one in held]) == 1
    assert store.run(job, held[0].id).worker == "w1"
    assert store.run(job, held[1].id).state == "succeeded"
    assert (store.run(job, again.id).worker, store.run(job, again.id).crashes) == ("w2", 0)
    assert store.run(job, held[3].id).crashes == 1


@pytest.mark.kinds("postgres")
def test_an_audit_waits_for_nobody(store: Store, database: Database) -> None:
    """R087: a row that somebody holds is left for the next pass."""
    made = put(store.run, 2, delay=60.0)
    set_all(database, f"run_at = {moment(database, -90)}")
    (late,) = [check for check in some_checks() if check.name == "timer-lost"]
    with database.connect() as other, other.transaction():
        other.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (made[0].id,))
        assert store.run(late.repair, [one.id for one in made]) == 1
    assert store.run(late.repair, [one.id for one in made]) == 1


def test_what_is_found_comes_in_pages(store: Store, database: Database) -> None:
    """R084: the longest late first, a page at a time."""
    made = put(store.run, 5, delay=60.0)
    for n, one in enumerate(made):
        set_all(database, f"run_at = {moment(database, -100 + n)}", f"id = '{one.id}'")
    pages = [store.run(find, "find_timer_lost", 2, skip, late=60.0) for skip in (0, 2, 4)]
    assert [[stray.id for stray in page] for page in pages] == [
        [made[0].id, made[1].id], [made[2].id, made[3].id], [made[4].id],
    ]  # fmt: skip


def test_the_dead_are_told_apart(run: Run, database: Database) -> None:
    """R049: `poison` and `undecodable` end dead, and are found by those names."""
    poison = put_and_take(run, max_crashes=1)
    end_leases(database)
    run(duties.expire)
    from outlast.ops.reclaim import reclaim

    run(reclaim)
    broken = put_and_take(run)
    told = {"type": "Undecodable", "message": "no JSON", "traceback": ""}
    end(run, broken, "undecodable", error=told)
    end(run, put_and_take(run), "permanent")
    for finder, one in (("find_poison", poison), ("find_undecodable", broken)):
        assert [stray.id for stray in run(find, finder)] == [one.id]


def test_a_redrive_that_died_midway_is_ended_by_the_same_words(run: Run) -> None:
    """`half-redriven`: what was revived stays so, and only the rest is revived by the next."""
    put(run, 4)
    for held in (gone := take(run, 4)):
        end(run, held, "permanent")
    ids = [held.id for held in gone]
    assert sorted(run(job_actions.redrive, ids[:2], "ann")) == sorted(ids[:2])
    running = take(run)[0]
    assert sorted(run(job_actions.redrive, ids, "ann")) == sorted(ids[2:])
    assert run(job, running.id).state == "running"
    assert [len(run(history, id)[1]) for id in ids] == [1] * 4


def test_a_restarted_worker_does_not_answer_for_its_dead_self(app: Outlast, run: Run) -> None:
    """`renamed`: another id at every start, and no renewal keeps what another id holds."""
    ids = {app.worker().id for _ in range(50)}
    assert len(ids) == 50
    old, new_one = sorted(ids)[:2]
    held = put(run) and take(run, worker=old)[0]
    assert run(renew, new_one, {held.id: held.fence}, 60.0).kept == frozenset()
    assert run(renew, old, {held.id: held.fence}, 60.0).kept == {held.id}


def some_checks() -> list[Check]:
    return audit.checks({"succeeded": 86400.0, "cancelled": 86400.0}, 3600.0, 5.0, decide_by_row)


def test_the_catalogue_is_whole(app: Outlast) -> None:
    """Every class says how it arises and what sees to it, has a finder where rows can show it and a
    duty that counts where it is healed, and some test speaks of it by its name."""
    statements = queries(SQLITE, "outlast").all()
    names = {loop.name for loop in seasoned(healer_of(app, app.store)).loops()}
    text = "\n".join(file.read_text() for file in Path(__file__).parents[1].rglob("test_*.py"))
    for orphan in ORPHANS.values():
        assert orphan.arises.endswith(".") and orphan.by.endswith(".")
        assert orphan.finder in {"", *statements}, orphan.name
        assert orphan.duty in {"", *names}, orphan.name
        assert orphan.fate is Fate.IMPOSSIBLE or orphan.finder, orphan.name
        assert f"`{orphan.name}`" in text, f"no test speaks of {orphan.name}"
    assert {check.name for check in some_checks()} <= ORPHANS.keys() | DANGLING.keys()
