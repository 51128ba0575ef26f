"""The nets themselves: they isolate rows, go on where they stopped, share the work, and tell skips
from failures."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from outlast import Outlast, StoreError
from outlast.ops import workers as worker_ops
from outlast.ops.duties import DutyTally
from outlast.ops.enqueue import enqueue
from outlast.ops.reclaim import ReclaimResult, reclaim_from_workers
from outlast.ops.report import Duty, job, workers
from outlast.ops.report import duties as all_duties
from outlast.store import Store
from tests.store.jobs import (
    column,
    end_leases,
    new,
    put,
    put_and_take,
    set_all,
    spoil,
    states,
    table,
    take,
)
from tests.store.test_audit import CARD, moment
from tests.support import Database
from tests.support.calm import seasoned
from tests.support.maintenance import healer_of

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def mend(database: Database) -> None:
    """What `spoil` broke is whole again."""
    with database.connect() as connection:
        if database.is_sqlite:
            connection.execute("DROP TRIGGER spoiled")
        else:
            connection.execute(f"ALTER TABLE {table(database, 'job')} DROP CONSTRAINT spoiled")


def duty(store: Store, name: str) -> Duty:
    return next(duty for duty in store.run(all_duties) if duty.name == name)


def counted(duty: Duty) -> tuple[int, int, int, int]:
    return duty.found, duty.healed, duty.skipped, duty.failed


@pytest.mark.slow_on("postgres")
@pytest.mark.quiet  # a sweep is bounded in time
@pytest.mark.parametrize(
    ("stuck", "hopeless"),
    [(1_000, 450), pytest.param(10_000, 1_000, marks=pytest.mark.campaign)],
)
async def test_stuck_rows_are_healed_although_the_first_of_them_cannot_be(
    app: Outlast, store: Store, database: Database, stuck: int, hopeless: int
) -> None:
    """R084: the others are healed within 10 sweeps, and each sweep gives up on a bounded number;
    10,000 rows in a campaign."""
    store.run(enqueue, [new() for _ in range(stuck)])
    held = take(store.run, stuck)
    bad = ", ".join(f"'{one.id}'" for one in held[:hopeless])
    set_all(database, f"lease_until = {moment(database, -5)}")
    set_all(database, f"lease_until = {moment(database, -99)}", f"id IN ({bad})")
    spoil(database, f"id IN ({bad})", "running")
    healer, sweeps = seasoned(healer_of(app, store)), []
    while sum(swept.healed for swept in sweeps) < stuck - hopeless and len(sweeps) < 10:
        sweeps.append(await healer.sweeper.sweep_lost())
    assert Counter(states(database)) == {"ready": stuck - hopeless, "running": hopeless}
    assert all(swept.failed <= 400 for swept in sweeps)
    more = put(store.run, queue="more")
    take(store.run, queue="more")
    set_all(database, f"lease_until = {moment(database, -1)}", f"id = '{more[0].id}'")
    swept = await healer.sweeper.sweep_lost()
    assert (swept.healed, store.run(job, more[0].id).state) == (1, "ready"), "not held up by them"
    mend(database)
    healer.sweeper._retry_at = 0.0
    assert (await healer.sweeper.sweep_lost()).healed == hopeless, "tried again, all of them"
    assert set(states(database)) == {"ready"}
    await store.aclose()


def count_writes(database: Database) -> None:
    """From now on, every row that is written is counted by the database itself."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE writes (n integer)")
        if not database.is_sqlite:
            connection.execute(
                f"CREATE FUNCTION {database.schema}.seen() RETURNS trigger LANGUAGE plpgsql AS"
                f" 'BEGIN INSERT INTO {database.schema}.writes VALUES (1); RETURN NULL; END'"
            )
        for name in ("job", "attempt", "event"):
            for verb in ("INSERT", "UPDATE", "DELETE"):
                done = (
                    "BEGIN INSERT INTO writes VALUES (1); END"
                    if database.is_sqlite
                    else f"EXECUTE FUNCTION {database.schema}.seen()"
                )
                connection.execute(
                    f"CREATE TRIGGER seen_{name}_{verb} AFTER {verb} ON {table(database, name)}"
                    f" FOR EACH ROW {done}"
                )


def test_five_sweepers_write_no_more_than_one(
    app: Outlast, store: Store, database: Database
) -> None:
    """R085: 1,000 stuck rows: each healed once, and at most 1.2 times the writes of one sweeper."""

    def stuck_and_swept(sweepers: int) -> tuple[list[ReclaimResult], int]:
        put(store.run, 1000)
        take(store.run, 1000)
        end_leases(database)
        database.rows("DELETE FROM writes")

        async def all_of_them() -> list[ReclaimResult]:
            stores = [store.clone() for _ in range(sweepers)]
            healers = [healer_of(app, each) for each in stores]
            swept = await asyncio.gather(*(healer.sweeper.sweep_lost(50) for healer in healers))
            await asyncio.gather(*(each.aclose() for each in stores))
            return list(swept)

        swept = asyncio.run(all_of_them())
        ((writes,),) = database.rows("SELECT count(*) FROM writes")
        assert sum(one.healed for one in swept) == 1000
        assert set(column(database, "crashes")) == {1}
        database.rows(f"DELETE FROM {table(database, 'job')}")
        return swept, writes

    count_writes(database)
    _, alone = stuck_and_swept(1)
    swept, together = stuck_and_swept(5)
    shared = sum(one.healed > 0 for one in swept) > 1
    assert shared or database.is_sqlite, "no sharing without several; one writer may do it all"
    assert 2000 <= alone <= together <= 1.2 * alone


async def test_skips_are_no_failures_and_a_net_that_only_fails_is_told_of(
    app: Outlast, store: Store, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R083: all skipped → no alert; all failed → an alert after one sweep; and it goes away."""
    healer = seasoned(healer_of(app, store))
    fine = put(store.run, 3, delay=60.0)
    (late,) = [check for check in healer.auditor._checks() if check.name == "timer-lost"]

    async def all_skipped() -> DutyTally:
        return await healer.auditor._repair(late.repair, [one.id for one in fine])

    await healer.duties.duty("audit", all_skipped, 0.0)()
    assert counted(duty(store, "audit")) == (3, 0, 3, 0)
    assert duty(store, "audit").error is None and duty(store, "audit").succeeded_at
    assert caplog.records == []

    set_all(database, f"run_at = {moment(database, -90)}")
    spoil(database, "true", "running", "scheduled")
    await healer.duties.duty("audit", healer.auditor.audit, 0.0)()
    told = duty(store, "audit")
    assert (counted(told), told.error) == ((6, 0, 3, 3), "3 of 3 failed and none was healed")
    assert duty(store, "timer-lost").error == "3 of 3 failed and none was healed"
    assert "duty 'audit' fails" in caplog.text

    mend(database)
    await healer.duties.duty("audit", healer.auditor.audit, 0.0)()
    assert (duty(store, "audit").error, duty(store, "timer-lost").error) == (None, None)
    assert counted(duty(store, "audit")) == (9, 3, 3, 3)
    await store.aclose()


async def test_the_reclaim_counts_too_and_says_when_it_only_fails(
    app: Outlast, store: Store, database: Database
) -> None:
    """R083, R089: every process does it, so it is no duty to be taken; its row counts all the
    same, and its last success is known although there was nothing to do."""
    healer = seasoned(healer_of(app, store))
    await healer.reclaim()
    assert counted(duty(store, "reclaim")) == (0, 0, 0, 0)
    assert duty(store, "reclaim").succeeded_at
    put(store.run, 3)
    held = take(store.run, 3)
    end_leases(database, f"id = '{held[0].id}'")
    await healer.reclaim()
    assert counted(duty(store, "reclaim")) == (1, 1, 0, 0)
    end_leases(database)
    spoil(database, "state = 'running'", "running")
    await healer.reclaim()
    assert counted(duty(store, "reclaim")) == (3, 1, 0, 2)
    assert duty(store, "reclaim").error == "2 of 2 failed and none was healed"
    await store.aclose()


async def test_a_dead_workers_bad_row_keeps_its_others_from_nothing(
    app: Outlast, store: Store, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R079, R082: a burial that fails leaves the card up; then all that can be taken back is, and
    the bad one is left to its lease."""
    caplog.set_level(logging.CRITICAL)
    store.run(worker_ops.register, CARD)
    store.run(worker_ops.prove_liveness, CARD["id"])
    put(store.run, 20)
    held = take(store.run, 20)
    spoil(database, f"id = '{held[7].id}'", "running")
    with pytest.raises(StoreError):
        store.run(reclaim_from_workers, ["w1"], "lock")
    assert [worker.id for worker in store.run(workers)] == ["w1"]
    assert set(states(database)) == {"running"}, "all or nothing"
    swept = await seasoned(healer_of(app, store)).reclaim_from(["w1"])
    assert (swept.healed, swept.failed) == (19, 1)
    assert store.run(workers) == []
    assert store.run(job, held[7].id).state == "running"
    await store.aclose()


async def test_one_bad_row_stops_neither_deadlines_nor_expiry(
    app: Outlast, store: Store, database: Database
) -> None:
    """R082, `owner-hung` and `expired`: 1 of 10 fails, 9 are healed."""
    healer = seasoned(healer_of(app, store))
    slow = [put_and_take(store.run, timeout=1.0) for _ in range(10)]
    set_all(database, f"started_at = {moment(database, -99)}")
    spoil(database, f"id = '{slow[0].id}'", "running")
    tally = await healer.overdue()
    assert (tally.found, tally.healed, tally.failed) == (10, 9, 1)
    mend(database)
    old = put(store.run, 10, expires_in=0.000001, delay=60.0)
    spoil(database, f"id = '{old[0].id}'", "running", "scheduled")
    await healer.expire()
    [done] = [duty for duty in store.run(all_duties) if duty.name == "expire"]
    assert (done.found, done.healed, done.failed) == (10, 9, 1)
    assert store.run(job, old[0].id).state == "scheduled"
    await store.aclose()
