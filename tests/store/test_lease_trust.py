"""What a clock that steps, or a lock of somebody else, does to jobs whose owner lives: nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outlast import Outlast
from outlast.model.lease_trust import BELIEVE, Belief
from outlast.model.worker_names import new_server_id, remote_id
from outlast.ops import duties
from outlast.ops import workers as worker_ops
from outlast.ops.doctor.orphans import find_orphans
from outlast.ops.finish import finish
from outlast.ops.job_actions import redrive
from outlast.ops.reclaim import decide_by_row, reclaim, reclaim_overdue, signs_of_loss
from outlast.ops.report import history, job
from outlast.store import Store
from outlast.store.sqlite import liveness
from tests.store.jobs import Run, ending, put, set_all, states, table, take
from tests.store.test_audit import some_checks
from tests.support import Database
from tests.support.calm import seasoned
from tests.support.maintenance import healer_of

LEASE = 15.0  # of the cards below
CALM = Belief(stable=0.5 * LEASE)


def arrived(app: Outlast, run: Run, *ids: str) -> None:
    for id in ids:
        run(worker_ops.register, app.worker(lease=LEASE).registration_row() | {"id": id})
        assert run(worker_ops.prove_liveness, id)


def in_future(database: Database, column: str, seconds: float) -> str:
    span = seconds if database.is_sqlite else f"interval '{seconds} seconds'"
    return f"{column} = {column} + {span}"


@contextmanager
def holding_lock(database: Database, worker: str) -> Iterator[None]:
    """A process that exists, as its liveness lock says."""
    if database.is_sqlite:
        proof = liveness.LivenessFile(database.path, worker)
        assert proof.acquire()
        yield
        proof.release()
        return
    with database.connect() as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (worker,))
        yield
        # The server ends a closed session in its own time: its locks may outlive the connection.
        connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (worker,))


@pytest.mark.parametrize(
    "belief",
    [CALM._replace(stable=0.4 * LEASE), CALM._replace(stable=-1.0), CALM._replace(until=1.0)],
    ids=["short-calm", "doubt", "waited"],
)
def test_a_lease_is_not_believed_before_its_owner_could_renew(
    app: Outlast, run: Run, database: Database, belief: Belief
) -> None:
    """R213, R214: neither after too short a calm nor by a statement that comes late."""
    arrived(app, run, "w1")
    put(run, 2)
    take(run, 2, lease=0.001)
    time.sleep(0.01)
    assert run(signs_of_loss).lease
    assert run(reclaim, 10, 0, belief).found == 0
    assert states(database) == ["running"] * 2
    assert run(reclaim, 10, 0, CALM).healed == 2


def test_a_job_of_a_process_that_exists_is_run_elsewhere_and_charged_with_no_crash(
    app: Outlast, run: Run, store: Store, database: Database
) -> None:
    """R030, R213: its liveness lock is held; its lease ran out all the same."""
    arrived(app, run, "w1", "w2")
    living, lost = put(run, 2)
    take(run, 1, lease=0.001)
    take(run, 1, lease=0.001, worker="w2")
    time.sleep(0.01)
    with holding_lock(database, "w1"):
        assert run(reclaim, 10, 0, BELIEVE, store.confirm_locked).healed == 2
    found = {run(job, id).worker: run(job, id) for id in (living.id, lost.id)}
    assert set(found) == {None}
    charged = {run(job, id).crashes: run(history, id)[0][0] for id in (living.id, lost.id)}
    assert charged[0].outcome == "stalled"
    assert "its process exists" in charged[0].error["message"]
    assert charged[1].outcome == "crashed"


def test_a_job_that_wedges_every_process_ends_dead_with_the_evidence(
    app: Outlast, run: Run, store: Store, database: Database
) -> None:
    """R049, R213: as many stalls as crashes; a redrive gives it a new life."""
    arrived(app, run, "w1")
    (stuck,) = put(run, 1, max_crashes=3)
    with holding_lock(database, "w1"):
        for life in range(2):
            for n in range(3):
                assert len(take(run, 1, lease=0.001)) == 1, (life, n)
                time.sleep(0.01)
                run(reclaim, 10, 0, BELIEVE, store.confirm_locked)
            dead = run(job, stuck.id)
            assert (dead.state, dead.crashes) == ("dead", 2)  # kept apart from its second stall on
            assert dead.error["type"] == "WorkerStalled"
            assert "3 of at most 3" in dead.error["message"]
            run(redrive, [stuck.id], "somebody", "")


def test_a_stalled_process_does_not_kill_the_neighbours_of_the_job_that_wedges_it(
    app: Outlast, run: Run, store: Store, database: Database
) -> None:
    """R050: from the second stall on, none of them shares a process with another."""
    arrived(app, run, "w1")
    put(run, 11, max_crashes=3)
    with holding_lock(database, "w1"):
        for _ in range(2):
            assert len(take(run, 11, lease=0.001)) == 11
            time.sleep(0.01)
            assert run(reclaim, 20, 0, BELIEVE, store.confirm_locked).healed == 11
        assert len(take(run, 11, lease=0.001)) == 1
        time.sleep(0.01)
        assert run(reclaim, 20, 0, BELIEVE, store.confirm_locked).dead == 1
    assert states(database).count("ready") == 10


def test_releases_in_between_do_not_hide_stalls(
    app: Outlast, run: Run, store: Store, database: Database
) -> None:
    """R049, R213: a release gives its attempt back, and its fence stays spent."""
    arrived(app, run, "w1")
    (stuck,) = put(run, 1, max_crashes=3)
    with holding_lock(database, "w1"):
        for _ in range(3):
            for _ in range(2):
                (claim,) = take(run)
                assert run(finish, [ending(claim, "released")]).accepted
            take(run, 1, lease=0.001)
            time.sleep(0.01)
            run(reclaim, 10, 0, BELIEVE, store.confirm_locked)
    dead = run(job, stuck.id)
    assert (dead.state, dead.error["type"]) == ("dead", "WorkerStalled")


def test_a_deadline_is_counted_from_when_the_clock_ran_evenly(
    app: Outlast, run: Run, database: Database
) -> None:
    """R213: a job with a timeout, an hour ahead: its owner counts by another clock."""
    put(run, 1, timeout=60.0)
    take(run)
    set_all(database, in_future(database, "started_at", -3600))
    stepped = BELIEVE._replace(since=run(signs_of_loss).clock - 10)
    assert run(reclaim_overdue, 5.0, decide_by_row, 10, 0, stepped).found == 0
    late = BELIEVE._replace(until=run(signs_of_loss).clock - 1800)
    assert run(reclaim_overdue, 5.0, decide_by_row, 10, 0, late).found == 0, (
        "it stepped after the look"
    )
    before = BELIEVE._replace(since=run(signs_of_loss).clock - 3600)
    assert run(reclaim_overdue, 5.0, decide_by_row, 10, 0, before).healed == 1


async def test_offers_that_lapse_all_the_time_keep_no_other_lease_from_being_judged(
    app: Outlast, store: Store, database: Database
) -> None:
    """R018, R214: a sweep that took something back shows, too, that owners can renew."""
    short = 1.2
    store.run(worker_ops.register, app.worker(lease=short).registration_row() | {"id": "dead"})
    (lost,) = put(store.run)
    take(store.run, worker="dead", lease=0.001)
    healer = healer_of(app, store, lease=short)
    until = time.monotonic() + 5 * short
    while store.run(job, lost.id).state == "running" and time.monotonic() < until:
        (offered,) = put(store.run, queue="offered")
        take(store.run, worker=new_server_id(), queue="offered", lease=0.001)
        await asyncio.sleep(0.05)
        await healer.reclaim()
        assert store.run(job, offered.id).state == "ready"
    assert store.run(job, lost.id).state == "ready"
    await store.aclose()


async def test_a_lease_from_before_a_step_back_is_judged_while_no_other_lease_ends(
    app: Outlast, store: Store, database: Database
) -> None:
    """R213: the audit can only end it if the stable period goes on all the time."""
    short = 1.2
    store.run(worker_ops.register, app.worker(lease=short).registration_row() | {"id": "dead"})
    put(store.run)
    take(store.run, worker="dead")
    set_all(database, in_future(database, "lease_until", 3600))
    seen = in_future(database, "seen_at", 3600)
    database.rows(f"UPDATE {table(database, 'worker')} SET {seen}")
    healer = healer_of(app, store, lease=short)
    until = time.monotonic() + 5 * short
    while states(database) == ["running"] and time.monotonic() < until:
        await healer.reclaim()
        await healer.auditor.audit()
        await asyncio.sleep(0.05)
    assert states(database) == ["ready"]
    await store.aclose()


async def test_the_audit_believes_no_lease_and_no_deadline_after_a_step(
    app: Outlast, store: Store, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R213: nor does it when the step comes between its finding and its repair; what is not
    believed is not called an orphan, either."""
    arrived(app, store.run, "w1")
    put(store.run, 2, timeout=1.0)
    take(store.run)
    take(store.run, worker="gone")
    ago = in_future(database, "lease_until", -3600), in_future(database, "started_at", -3600)
    set_all(database, ", ".join(ago))
    healer = healer_of(app, store)
    await healer.detector.read_signs()
    assert (await healer.auditor.audit()).found == 0
    assert states(database) == ["running"] * 2 and "audit:" not in caplog.text
    assert (await seasoned(healer).auditor.audit()).healed == 2
    assert "running" not in states(database) and "audit: 1 owner-dead found" in caplog.text
    await store.aclose()


def test_a_duty_does_not_sleep_when_the_clock_stepped_back(run: Run, database: Database) -> None:
    """R213: due in an hour, and done every minute."""
    assert run(duties.take_duty, "audit", 60.0, "w1")
    assert not run(duties.take_duty, "audit", 60.0, "w2")
    database.rows(f"UPDATE {table(database, 'duty')} SET {in_future(database, 'next_at', 3600)}")
    assert run(duties.take_duty, "audit", 60.0, "w2")
    assert not run(duties.take_duty, "audit", 60.0, "w1")


def test_a_lease_from_before_the_clock_stepped_back_keeps_no_job_for_an_hour(
    app: Outlast, run: Run, database: Database
) -> None:
    """R213: where there is no lock to tell, and the owner was not heard of since."""
    arrived(app, run, "dead", "living")
    put(run, 2)
    take(run, 1, worker="dead")
    take(run, 1, worker="living")
    set_all(database, in_future(database, "lease_until", 3600))
    seen = in_future(database, "seen_at", 3600)
    database.rows(f"UPDATE {table(database, 'worker')} SET {seen} WHERE id = 'dead'")
    (endless,) = [check for check in some_checks() if check.finder == "find_endless"]
    found = [stray.id for stray in run(endless.find)]
    assert [run(job, id).worker for id in found] == ["dead"]
    assert run(endless.repair, found) == 1
    assert sorted(states(database)) == ["ready", "running"]


def test_remote_workers_do_not_share_the_looking(app: Outlast, run: Run) -> None:
    """R222: they never look, so they must not make others look less often."""
    arrived(app, run, "w1", "w2")
    for n in range(100):
        run(
            worker_ops.register,
            app.worker().registration_row() | {"id": remote_id("token", f"r{n}")},
        )
    assert run(signs_of_loss).fleet == 2


async def test_a_hundred_remote_workers_do_not_delay_the_next_look(
    app: Outlast, store: Store
) -> None:
    """R222: as often as alone."""
    for n in range(100):
        store.run(
            worker_ops.register,
            app.worker().registration_row() | {"id": remote_id("token", f"r{n}")},
        )
    healer = healer_of(app, store)
    assert await healer.reclaim() <= 1.1 * healer._state.settings.reclaim_every
    await store.aclose()


def test_doctor_does_not_call_jobs_of_a_live_process_lost_after_a_step(
    app: Outlast, run: Run, store: Store, database: Database
) -> None:
    """R213: an hour ahead, before the next renewal; where no lock is held it says so."""
    arrived(app, run, "w1")
    put(run, 1, timeout=60.0)
    take(run)
    ago = in_future(database, "lease_until", -3600), in_future(database, "started_at", -3600)
    set_all(database, ", ".join(ago))
    seen = in_future(database, "seen_at", -3600)
    database.rows(f"UPDATE {table(database, 'worker')} SET {seen}")
    with holding_lock(database, "w1"):
        assert run(find_orphans, store.confirm_locked) == []
    if not database.is_sqlite:
        found = {ailment.name for ailment, _ in run(find_orphans, store.confirm_locked)}
        assert found == {"owner-dead", "owner-hung"}
