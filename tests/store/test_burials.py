"""Workers that are gone for certain: what they held is taken back, whatever its leases say."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from outlast import Outlast, Retry
from outlast.ops import retention
from outlast.ops import workers as worker_ops
from outlast.ops.job_actions import cancel
from outlast.ops.operation import Op
from outlast.ops.reclaim import (
    decide_by_row,
    reclaim_from_workers,
    reclaim_overdue,
    reclaim_some,
    signs_of_loss,
)
from outlast.ops.report import duties as all_duties
from outlast.ops.report import history, job
from outlast.ops.report import workers as all_workers
from outlast.store import Store
from outlast.store.sqlite import liveness
from outlast.worker.death_detector import CONFIRM_DEATH_S
from tests.store.crowd import all_at_once
from tests.store.jobs import Run, column, end, put, set_all, spoil, states, table, take
from tests.store.test_audit import some_checks
from tests.support import Database
from tests.support.calm import let_time_pass, seasoned
from tests.support.maintenance import healer_of


def arrived(app: Outlast, run: Run, *ids: str) -> None:
    """Workers with a card, and nothing more."""
    for id in ids:
        run(worker_ops.register, app.worker().registration_row() | {"id": id})


def proven(app: Outlast, run: Run, *ids: str) -> None:
    """The same, and once they held their locks."""
    arrived(app, run, *ids)
    for id in ids:
        assert run(worker_ops.prove_liveness, id)


def test_only_the_dead_workers_jobs_are_taken_back(app: Outlast, run: Run) -> None:
    """R061, R080: with the evidence; and the living keep theirs."""
    proven(app, run, "w1", "w2")
    put(run, 5)
    lost, kept = take(run, 3), take(run, 2, worker="w2")
    swept = run(reclaim_from_workers, ["w1"], "lock")
    assert (swept.found, swept.healed, swept.dead, swept.queues) == (3, 3, 0, {"default"})
    assert [worker.id for worker in run(all_workers)] == ["w2"]
    assert {run(job, one.id).state for one in lost} == {"ready"}
    assert {run(job, one.id).state for one in kept} == {"running"}
    [attempt] = run(history, lost[0].id)[0]
    assert attempt.error["message"] == (
        "worker w1 died (its liveness lock is free) during attempt 1 (lost worker 1 of at most 3)"
    )
    assert run(reclaim_from_workers, ["w1"], "lock").found == 0, "once"
    assert not end(run, lost[0]).accepted, "what the dead says later is refused"


def test_a_lost_worker_may_be_one_too_many_or_no_longer_matter(app: Outlast, run: Run) -> None:
    """R049, R062 `uncancelled`: at the cap a job is dead; one that somebody wanted to cancel is."""
    arrived(app, run, "w1")
    (last,) = put(run, 1, max_crashes=1)
    (unwanted,) = put(run)
    take(run, 2)
    run(cancel, unwanted.id, "somebody", "")
    swept = run(reclaim_from_workers, ["w1"], "exit", "died (signal 9, SIGKILL)")
    assert (swept.found, swept.dead) == (2, 1)
    assert (run(job, last.id).state, run(job, unwanted.id).state) == ("dead", "cancelled")
    assert "signal 9, SIGKILL" in run(job, last.id).error["message"]


def test_five_who_notice_at_once_bury_once(app: Outlast, store: Store, database: Database) -> None:
    """R085: by its lock and by its supervisor, say."""
    proven(app, store.run, "w1")
    put(store.run, 200)
    take(store.run, 200)
    swept = all_at_once(5, lambda _: store.run(reclaim_from_workers, ["w1"], "lock"))
    assert sum(one.healed for one in swept) == 200
    assert set(column(database, "crashes")) == {1}
    notes = f"SELECT count(*) FROM {table(database, 'event')} WHERE kind = 'worker-lost'"
    assert database.rows(notes) == [(1,)]


async def test_one_bad_row_does_not_keep_the_dead_from_being_buried(
    app: Outlast, store: Store, database: Database
) -> None:
    """R082: then the jobs are taken back one by one, and that one is left to its lease."""
    proven(app, store.run, "w1")
    put(store.run, 10)
    held = take(store.run, 10)
    spoil(database, f"id = '{held[3].id}'", "running")
    healer = healer_of(app, store)
    swept = await healer.reclaim_from(["w1"])
    assert (swept.healed, swept.failed) == (9, 1)
    assert store.run(all_workers) == []
    assert Counter(states(database)) == {"ready": 9, "running": 1}
    await store.aclose()


def test_without_a_proof_of_life_nobody_is_suspected(app: Outlast, run: Run) -> None:
    """R078, R172: what cannot be known is no death: behind a pooler there is no lock at all."""
    arrived(app, run, "w1")
    assert run(signs_of_loss).workers == ()
    assert run(signs_of_loss).fleet == 1


def test_who_is_dead_must_be_seen_dead_twice(app: Outlast, store: Store) -> None:
    """R169: a lock may be free while its connection is being made again."""
    healer = healer_of(app, store)
    assert healer.detector.confirmed_dead(["w1", healer._state.id]) == []
    assert healer.detector.confirmed_dead([]) == [], "it was back"
    assert healer.detector.confirmed_dead(["w1"]) == []
    healer.detector._suspected["w1"] -= CONFIRM_DEATH_S
    assert healer.detector.confirmed_dead(["w1", "w2"]) == ["w1"]


@pytest.mark.kinds("postgres")
def test_who_has_its_lock_back_is_not_buried(app: Outlast, run: Run, database: Database) -> None:
    """R033, R085: neither at once nor row by row; and whose supervisor saw it exit is."""
    proven(app, run, "w1", "w2")
    put(run, 4)
    take(run, 2)
    take(run, 2, worker="w2")
    with database.connect() as living:
        living.execute("SELECT pg_advisory_lock(hashtextextended('w1', 0))")
        assert run(reclaim_some, ["w1"], "lock", 10, 0).found == 0
        assert run(reclaim_some, ["w1", "w2"], "lock", 1, 0).healed == 1
        swept = run(reclaim_from_workers, ["w1", "w2"], "lock")
        assert (swept.healed, swept.workers_removed) == (1, 1)
        assert [worker.id for worker in run(all_workers)] == ["w1"]
        assert run(reclaim_from_workers, ["w1"], "exit").healed == 2


@pytest.mark.kinds("postgres")
def test_nobody_proves_a_life_while_it_is_being_buried(
    app: Outlast, store: Store, database: Database
) -> None:
    """R085: the lock is ours until its card is down."""
    proven(app, store.run, "w1")
    tried = "SELECT pg_try_advisory_lock(hashtextextended('w1', 0))"
    seen: list[tuple[object, ...]] = []

    def burial() -> Op[None]:
        yield from reclaim_from_workers(["w1"], "lock")
        seen.extend(database.rows(tried))

    store.run(burial)
    assert seen == [(False,)]
    assert database.rows(tried) == [(True,)]


async def test_a_free_lock_says_nothing_right_after_an_outage(
    app: Outlast, store: Store, database: Database
) -> None:
    """R033: others may be making their connections anew, as we had to."""
    arrived(app, store.run, "w1")
    store.run(worker_ops.prove_liveness, "w1")
    if database.is_sqlite:
        liveness.folder(database.path).mkdir()
    put(store.run)
    take(store.run)
    healer = healer_of(app, store)
    healer.detector.distrust_locks()
    for _ in range(2):
        await healer.reclaim()
        await asyncio.sleep(CONFIRM_DEATH_S)
    assert states(database) == ["running"]
    healer.detector._locks_trusted_at = 0.0
    for _ in range(2):
        await healer.reclaim()
        await asyncio.sleep(CONFIRM_DEATH_S)
    assert states(database) == ["ready"]
    await store.aclose()


def test_a_job_past_its_deadline_is_ended_by_others(run: Run, database: Database) -> None:
    """R032, R060 `owner-hung`: as timed out, by its own policy; others are left alone."""
    (slow,) = put(run, 1, timeout=1.0)
    put(run)
    put(run, 1, timeout=9999.0)
    take(run, 3)
    assert run(reclaim_overdue, 5.0, decide_by_row).found == 0
    past = "started_at - 10" if database.is_sqlite else "started_at - interval '10 seconds'"
    set_all(database, f"started_at = {past}")
    swept = run(reclaim_overdue, 5.0, decide_by_row)
    assert (swept.found, swept.healed) == (1, 1)
    assert run(job, slow.id).state == "scheduled"
    [attempt] = run(history, slow.id)[0]
    assert attempt.outcome == "timed-out"


class TestLastLives:
    """R049, R050: jobs that one more lost worker would end share a process with no other such."""

    def test_one_at_a_time(self, run: Run, database: Database) -> None:
        put(run, 4)
        set_all(database, "crashes = 2")
        (one,) = take(run, 10)
        assert one.one_crash_left
        assert take(run, 10, allow_one_crash_left=False) == []
        assert len(take(run, 10)) == 1, "a process that has none may have the next"

    def test_the_others_are_not_kept_waiting(self, run: Run, database: Database) -> None:
        put(run, 3)
        set_all(database, "crashes = 2")
        put(run, 3)
        assert [one.one_crash_left for one in take(run, 10)] == [True, False, False, False]

    def test_one_crash_tells_nothing(self, run: Run, database: Database) -> None:
        put(run, 3)
        set_all(database, "crashes = 1")
        assert len(take(run, 10)) == 3

    def test_a_last_life_of_an_unknown_task_blocks_no_other(
        self, run: Run, database: Database
    ) -> None:
        put(run, 1, task="unknown")
        put(run)
        set_all(database, "crashes = 2")
        (one,) = take(run, 10, unknown=["unknown"])
        assert one.task == "work"


def test_a_row_that_cannot_be_read_does_not_stop_the_deadline_net(
    run: Run, database: Database
) -> None:
    """R013, R082: it goes dead alone; the other is timed out."""
    (odd, slow) = put(run, 2, timeout=1.0)
    take(run, 2)
    past = "started_at - 10" if database.is_sqlite else "started_at - interval '10 seconds'"
    set_all(database, f"started_at = {past}")
    set_all(database, """retry = '{"of_a_later_release": 1}'""", f"id = '{odd.id}'")
    assert run(reclaim_overdue, 5.0, decide_by_row).healed == 2
    assert (run(job, odd.id).state, run(job, slow.id).state) == ("dead", "scheduled")


@pytest.mark.kinds("sqlite")
def test_one_file_by_two_names_has_one_place_for_proofs(tmp_path: Path) -> None:
    """R061: or workers that reach it by a link would bury each other."""
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    proof = liveness.LivenessFile(tmp_path / "link.db", "w1")
    assert proof.acquire()
    assert liveness.dead_workers(tmp_path / "real.db", ["w1", "w2"]) == ["w2"]
    proof.release()
    assert liveness.dead_workers(tmp_path / "elsewhere.db", ["w1"]) == [], "nothing is told there"


def test_a_card_is_kept_for_as_long_as_its_own_lease_and_then_some(
    app: Outlast, run: Run, database: Database
) -> None:
    """R080: a worker with a long lease may well be silent for longer than others are listed."""
    arrived(app, run, "short")
    run(worker_ops.register, app.worker(lease=7200).registration_row() | {"id": "long"})
    ago = "seen_at - 5000" if database.is_sqlite else "seen_at - interval '5000 seconds'"
    database.rows(f"UPDATE {table(database, 'worker')} SET seen_at = {ago}")
    (silent,) = [check for check in some_checks() if check.name == "silent-worker"]
    assert [stray.id for stray in run(silent.find)] == ["short"]
    assert run(retention.prune_workers, 3600.0) == 1
    assert [worker.id for worker in run(all_workers)] == ["long"]


class TestAfterAnOutage:
    """R033: whoever waited for the database as we did has its turn first."""

    async def test_nobody_is_timed_out(
        self, app: Outlast, store: Store, database: Database
    ) -> None:
        put(store.run, 1, timeout=1.0)
        take(store.run)
        past = "started_at - 999" if database.is_sqlite else "started_at - interval '999 seconds'"
        set_all(database, f"started_at = {past}")
        healer = healer_of(app, store)
        loops = {loop.name: loop for loop in healer.loops()}
        healer.detector.trust.doubt()
        for away in (True, False):
            if not away:
                await healer.reclaim()  # the first that gets through
            assert healer.detector.outage_grace
            for name in ("deadline", "audit"):
                await loops[name].astep()
            assert states(database) == ["running"]
        assert {duty.name for duty in await store.arun(all_duties)} <= {"reclaim"}, "none taken"
        let_time_pass(healer)
        await loops["deadline"].astep()
        assert states(database) == ["scheduled"]
        await store.aclose()

    async def test_the_time_of_the_living_begins_when_the_database_is_back(
        self, app: Outlast, store: Store, database: Database
    ) -> None:
        """However long ago it was that we last asked for it."""
        put(store.run)
        take(store.run, lease=0.001)
        healer = healer_of(app, store)
        await healer.reclaim()
        let_time_pass(healer)
        healer.detector.trust.doubt()
        await healer.reclaim()
        assert states(database) == ["running"]
        let_time_pass(healer)
        await healer.reclaim()
        assert states(database) == ["ready"]
        await store.aclose()


@pytest.mark.parametrize("net", ["deadline", "audit"])
async def test_a_job_past_its_deadline_is_retried_as_its_task_says(
    app: Outlast, store: Store, database: Database, net: str
) -> None:
    """R032, R045: by whoever knows the task, not by what is usual."""

    @app.task(name="work", retry=Retry(base=1000.0, cap=1000.0, jitter=0.0))
    def work() -> None:
        pass

    (slow,) = put(store.run, 1, timeout=1.0)
    take(store.run)
    past = "started_at - 999" if database.is_sqlite else "started_at - interval '999 seconds'"
    set_all(database, f"started_at = {past}")
    healer = seasoned(healer_of(app, store))
    await {"deadline": healer.overdue, "audit": healer.auditor.audit}[net]()
    again = await store.arun(job, slow.id)
    assert again.state == "scheduled"
    assert 900 < (again.run_at - again.created_at).total_seconds() < 1100
    await store.aclose()
