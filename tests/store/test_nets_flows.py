"""The nets below flows: one that cannot be tended stops neither another nor any other recovery."""

from __future__ import annotations

import logging

import pytest

from outlast import Job, Outlast
from outlast.model.flow import group
from outlast.ops import duties
from outlast.ops.cancel_flow import mark_cancelled
from outlast.ops.flow_report import flow
from outlast.ops.reclaim import signs_of_loss
from outlast.store import Store
from tests.store.flowing import calls, lay, state
from tests.store.jobs import end, end_leases, put_and_take, set_all, table
from tests.store.test_flows_late import come_after
from tests.support import Database, aeventually
from tests.support.calm import seasoned
from tests.support.maintenance import healer_of
from tests.worker.working import work

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def forbid(database: Database, job: Job, change: str) -> None:
    """From now on, the database refuses this change of a job."""
    jobs, name = table(database, "job"), f"spoiled_{job.id.replace('-', '')}"
    if database.is_sqlite:
        text = (
            f"CREATE TRIGGER {name} BEFORE UPDATE ON {jobs} WHEN old.id = '{job.id}'"
            f" AND new.{change} BEGIN SELECT RAISE(ABORT, 'spoiled'); END"
        )
    else:
        text = (
            f"ALTER TABLE {jobs} ADD CONSTRAINT {name}"
            f" CHECK (id <> '{job.id}' OR NOT ({change})) NOT VALID"
        )
    database.rows(text)


def spoiled_latecomer(app: Outlast, store: Store, database: Database) -> Job:
    held = put_and_take(store.run)
    late = come_after(app, database, held.id)
    end(store.run, held)
    forbid(database, late, "unlinked = false")
    return late


def spoiled_cancel(app: Outlast, store: Store, database: Database) -> Job:
    job, *_ = lay(store.run, group(*calls(3)))
    store.run(mark_cancelled, job.flow, "ann", "")
    forbid(database, job, "state = 'cancelled'")
    return job


@pytest.mark.parametrize("spoiled", [spoiled_latecomer, spoiled_cancel])
async def test_a_flow_that_cannot_be_tended_keeps_no_lost_job_waiting(
    app: Outlast,
    store: Store,
    database: Database,
    spoiled: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R082: tending is no part of the reclaim, in which one failure would put off all the rest."""
    caplog.set_level(logging.CRITICAL)
    job = spoiled(app, store, database)  # type: ignore[operator]
    healer = seasoned(healer_of(app, store))
    for _ in range(3):
        lost = put_and_take(store.run, queue="lost")
        end_leases(database)
        await healer.reclaim()
        assert state(store.run, lost) == ["ready"]
        set_all(database, "queue = 'done'", f"id = '{lost.id}'")
    assert state(store.run, job)[0] in ("waiting", "ready"), "it can be tended after all"
    await store.aclose()


async def test_one_flow_that_cannot_be_tended_keeps_no_other_waiting(
    app: Outlast, store: Store, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R082: 1 of 20 latecomers, and the first of 3 cancelled flows: all others are tended in one
    pass, and it is said of those that they cannot be."""
    bad = spoiled_latecomer(app, store, database)
    held = put_and_take(store.run)
    late = [come_after(app, database, held.id) for _ in range(19)]
    end(store.run, held)
    flows = [lay(store.run, group(*calls(3))) for _ in range(3)]
    for jobs in flows:
        store.run(mark_cancelled, jobs[0].flow, "ann", "")
    forbid(database, flows[0][0], "state = 'cancelled'")

    async def tended() -> bool:
        others = [store.run(flow, one[0].flow).state for one in flows[1:]]
        return state(store.run, *late) == ["ready"] * 19 and others == ["cancelled"] * 2

    assert store.run(duties.take_duty, "audit", 3600.0, "ann"), "which would heal them too"
    async with work(app, queues=["elsewhere"]):
        await aeventually(tended, 20.0, message=lambda: str(state(store.run, *late)))
    assert state(store.run, bad, flows[0][0]) == ["waiting", "ready"]
    assert store.run(signs_of_loss).unlinked and store.run(signs_of_loss).flows
    assert "cannot be cancelled" in caplog.text and "cannot be healed" in caplog.text
    await store.aclose()
