"""The nets: reclaim, expire, prune. What they heal, and above all what they leave alone."""

from __future__ import annotations

from collections import Counter

import pytest

from outlast import Outlast
from outlast.model.settings import RetentionSettings
from outlast.ops import duties, events, job_actions, retention
from outlast.ops import workers as worker_ops
from outlast.ops.claim import promote
from outlast.ops.duties import DutyTally
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.job_actions import record_action
from outlast.ops.live_stats import losses
from outlast.ops.reclaim import Refusal, reclaim, record_refusals, signs_of_loss
from outlast.ops.report import clock, history, job
from outlast.ops.report import duties as all_duties
from outlast.ops.report import workers as all_workers
from outlast.ops.workers import deregister
from outlast.store import Store, open_store
from tests.store.conftest import Run
from tests.store.crowd import NESTED_LOOPS, all_at_once
from tests.store.jobs import (
    column,
    end,
    end_leases,
    ending,
    make_due,
    new,
    put,
    put_and_take,
    set_all,
    spoil,
    states,
    table,
    take,
)
from tests.support import Database, eventually
from tests.support.maintenance import healer_of


def test_a_lost_claim_is_taken_back(run: Run, database: Database) -> None:
    """R027, R076: ready again for anyone, the crash counted, the failure budget untouched."""
    held = put_and_take(run)
    assert not run(signs_of_loss).lease
    assert run(reclaim).found == 0, "a lease that holds is left alone"
    end_leases(database)
    assert run(signs_of_loss).lease
    swept = run(reclaim)
    assert (swept.found, swept.healed, swept.dead, swept.queues) == (1, 1, 0, {"default"})
    after = run(job, held.id)
    assert (after.state, after.crashes, after.failures, after.worker) == ("ready", 1, 0, None)
    (attempt,), _ = run(history, held.id)
    assert (attempt.outcome, attempt.worker, attempt.fence) == ("crashed", "w1", held.fence)
    assert take(run, worker="w2")[0].attempt == 2


def test_a_real_lease_runs_out_by_the_databases_clock(run: Run) -> None:
    """R027, R035, R208: no row is back-dated here."""
    put(run)
    (held,) = take(run, lease=0.3)
    assert not run(signs_of_loss).lease
    eventually(lambda: run(signs_of_loss).lease)
    assert run(clock) >= held.started_at + 0.3
    assert run(reclaim).healed == 1


def test_a_job_that_costs_too_many_workers_is_dead_with_the_evidence(
    run: Run, database: Database
) -> None:
    """R049: the third lost worker is the last one."""
    (made,) = put(run, max_crashes=3)
    for _ in range(3):
        take(run)
        end_leases(database)
        swept = run(reclaim)
    assert (swept.dead, take(run)) == (1, [])
    after = run(job, made.id)
    assert (after.state, after.crashes, after.attempt) == ("dead", 3, 3)
    assert after.error is not None and after.error["type"] == "WorkerLost"
    assert len(run(history, made.id)[0]) == 3


def test_a_lost_job_that_was_cancelled_ends_cancelled(run: Run, database: Database) -> None:
    """R115: a request whose owner died before it saw it is honoured by the reclaim."""
    held = put_and_take(run)
    run(job_actions.cancel, held.id, "ann", "")
    end_leases(database)
    run(reclaim)
    assert states(database) == ["cancelled"]


def test_the_longest_lost_come_first_and_a_limit_is_kept(run: Run, database: Database) -> None:
    """R084: ordered and paged, so that nothing starves."""
    put(run, 6)
    held = take(run, 6)
    past = "{n}" if database.is_sqlite else "to_timestamp({n})"
    for n, one in enumerate(reversed(held)):
        set_all(database, f"lease_until = {past.format(n=n + 1)}", f"id = '{one.id}'")
    assert run(reclaim, 2).healed == 2
    assert states(database) == ["running"] * 4 + ["ready"] * 2
    assert run(reclaim, 2, 1).healed == 2
    assert states(database) == ["running", "ready", "ready", "running", "ready", "ready"]


@pytest.mark.parametrize(("stuck", "bad"), [(100, 1), (300, 30)])
async def test_one_bad_row_keeps_no_other_from_being_healed(
    app: Outlast, store: Store, database: Database, stuck: int, bad: int
) -> None:
    """R082, R084: 1 of 100 fails → 99 recovered and 1 counted, in one sweep; also when the first
    ones are all bad."""
    put(store.run, stuck)
    held = take(store.run, stuck)
    end_leases(database)
    where = ", ".join(f"'{one.id}'" for one in held[:bad])
    spoil(database, f"id IN ({where})", "running")
    swept = await healer_of(app, store).sweeper.sweep_lost()
    assert (swept.found, swept.healed, swept.failed) == (stuck, stuck - bad, bad)
    assert Counter(states(database)) == {"ready": stuck - bad, "running": bad}
    await store.aclose()


def test_five_sweepers_heal_each_job_once(store: Store, database: Database) -> None:
    """R085: they share the work: 1,000 lost, 1,000 healed, 1,000 records."""
    put(store.run, 1000)
    take(store.run, 1000)
    end_leases(database)

    def sweep(_: int) -> int:
        healed = 0
        while store.run(signs_of_loss).lease:
            healed += store.run(reclaim, 50).healed
        return healed

    assert sum(all_at_once(5, sweep)) == 1000
    assert set(states(database)) == {"ready"}
    assert set(column(database, "crashes")) == {1}
    assert database.rows(f"SELECT count(*) FROM {table(database, 'attempt')}") == [(1000,)]


def test_a_backlog_is_no_reason_to_do_anything(run: Run, database: Database) -> None:
    """R086, `mislabelled`: 10,000 queued and some slow but alive; ten sweeps change none."""
    run(enqueue, [new(delay=3600.0 if n % 10 == 0 else None) for n in range(10_000)])
    take(run, 10)
    everything = f"SELECT * FROM {table(database, 'job')} ORDER BY id"
    before = database.rows(everything)
    for _ in range(10):
        assert run(reclaim).found == 0
        assert run(duties.expire) == []
        assert run(retention.prune, "succeeded", 0.0, 1000) == 0
    assert database.rows(everything) == before


@pytest.mark.kinds("postgres", "pgbouncer")
def test_a_row_that_somebody_holds_is_left_for_the_next_sweep(run: Run, database: Database) -> None:
    """R078, R087: a sweep waits for nobody's lock."""
    put(run, 3)
    held = take(run, 3)
    end_leases(database)
    with database.connect() as other, other.transaction():
        other.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (held[0].id,))
        assert run(reclaim).healed == 2
    assert run(reclaim).healed == 1


def test_pruning_removes_what_ended_long_ago_and_nothing_else(run: Run, database: Database) -> None:
    """R088: small batches; live and dead jobs, young ones and their records stay."""
    outcomes = ["succeeded", "cancelled", "permanent", "released", "failed"]
    put(run, 50)
    held = take(run, 40)
    run(finish, [ending(one, outcomes[n % 5]) for n, one in enumerate(held[:35])])
    for one in held[:35]:
        run(job_actions.record_action, "seen", [one.id], {})
    young = put_and_take(run, queue="young")
    long_ago = "1" if database.is_sqlite else "now() - interval '30 days'"
    set_all(database, f"finished_at = {long_ago}", "finished_at IS NOT NULL")
    end(run, young)
    set_all(database, f"created_at = {long_ago}, run_at = {long_ago}")
    before = Counter(states(database))
    assert (before["succeeded"], before["cancelled"], before["dead"]) == (8, 7, 7)
    assert [run(retention.prune, "succeeded", 3600.0, 3) for _ in range(4)] == [3, 3, 1, 0]
    assert [run(retention.prune, "cancelled", 3600.0, 5) for _ in range(3)] == [5, 2, 0]
    assert run(retention.prune, "dead", 0.0, 100) == 0, "dead ones never, without being asked"
    after = Counter(states(database))
    assert after == before - Counter(succeeded=7, cancelled=7)
    for side in ("attempt", "event"):
        orphans = (
            f"SELECT count(*) FROM {table(database, side)} WHERE job NOT IN"
            f" (SELECT id FROM {table(database, 'job')})"
        )
        assert database.rows(orphans) == [(0,)]
    assert len(run(history, held[2].id)[0]) == 1
    assert run(job, young.id).state == "succeeded"


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("planner", ["", NESTED_LOOPS], ids=["as usual", "nested loops"])
def test_no_plan_widens_a_limit(database: Database, planner: str) -> None:
    """R087, R088: a batch is as small as was asked for, so that its transaction is short."""
    store = open_store(database.url + planner, database.schema)
    put(store.run, 9, queue="late", expires_in=0.000001)
    assert len(store.run(duties.expire, 4)) == 4
    assert store.run(retention.prune, "cancelled", 0.0, 3) == 3
    put(store.run, 9, queue="due", delay=60.0)
    make_due(database)
    store.run(promote, 4)
    assert Counter(states(database)) == {"cancelled": 1, "ready": 5 + 4, "scheduled": 5}
    take(store.run, 9, queue="due")
    end_leases(database)
    assert store.run(reclaim, 4).healed == 4
    store.close()


def test_a_key_is_free_again_when_its_job_is_pruned(run: Run) -> None:
    """R088, R003"""
    held = put_and_take(run, key="k")
    end(run, held)
    eventually(
        lambda: run(retention.prune, "succeeded", 0.0, 10) == 1
    )  # not in the same millisecond
    (again,) = put(run, key="k", args="[2]")
    assert again.id != held.id


def test_incidents_are_kept_for_a_while_and_what_people_did_for_ever(
    run: Run, database: Database
) -> None:
    """R200, R203: lost workers, refused writes and wrong tokens; in small batches, oldest first."""
    held = put_and_take(run)
    run(record_refusals, [Refusal(held.id, n, "w1", "succeeded") for n in range(3)])
    for kind in ("worker-lost", "wrong-tokens", "pause", "token-revoked"):
        run(record_action, kind, [None], {})
    run(job_actions.cancel, held.id, "ann", "")
    run(events.assign_positions)
    assert run(retention.prune_incidents, 3600.0, 10) == 0, "they are young"
    eventually(lambda: run(retention.prune_incidents, 0.0, 4) == 4)
    assert [told.kind for told in run(events.page, 0, None, 9).events] == [
        "wrong-tokens", "pause", "token-revoked", "cancel"
    ]  # fmt: skip
    assert run(retention.prune_incidents, 0.0, 4) == 1
    assert run(retention.prune_incidents, 0.0, 4) == 0
    assert len(run(events.page, 0, None, 9).events) == 3


@pytest.mark.kinds("sqlite", "postgres")
async def test_whoever_prunes_prunes_incidents(store: Store, database: Database) -> None:
    """R203: all that are old enough, a batch at a time."""
    kept = RetentionSettings(keep_incidents=0.0, prune_batch=2)
    app = Outlast(database.url, schema=database.schema, retention=kept)
    store.run(record_refusals, [Refusal("job", n, "w1", "succeeded") for n in range(5)])
    eventually(lambda: store.run(retention.prune_incidents, 0.0, 1) == 1)
    await healer_of(app, store).pruner.prune()
    assert store.run(losses, "write-refused") == []
    await store.aclose()
    await app.aclose()


def test_one_process_at_a_time_takes_a_duty(store: Store) -> None:
    """R085, R089: any of them, one of them, and the record says how it went."""
    takers = all_at_once(8, lambda n: store.run(duties.take_duty, "prune", 3600.0, f"w{n}"))
    assert sum(due_at is not None for due_at in takers) == 1
    store.run(duties.report_duty, "prune", DutyTally(found=5, healed=3, skipped=2))
    store.run(duties.report_duty, "prune", DutyTally(failed=1, error="disk full"))
    (duty,) = store.run(all_duties)
    assert (duty.found, duty.healed, duty.skipped, duty.failed) == (5, 3, 2, 1)
    assert duty.succeeded_at is not None and duty.error == "disk full"
    assert store.run(duties.take_duty, "other", 0.0, "w1")
    assert store.run(duties.take_duty, "other", 0.0, "w2"), "due again at once"


def test_workers_come_live_and_go(run: Run) -> None:
    """R042"""
    card = {
        "id": "w1", "host": "h", "pid": 7, "queues": '["a"]', "tasks": '["t"]', "concurrency": 3,
        "version": "1", "lease": 0.2,
    }  # fmt: skip
    run(worker_ops.register, card)
    run(worker_ops.register, card | {"id": "w2", "queues": None})
    assert run(worker_ops.heartbeat, "w1", 2, "draining") == (True, False)
    assert run(worker_ops.heartbeat, "gone", 0, "working") == (False, False)
    assert run(worker_ops.prove_liveness, "w1")
    assert run(worker_ops.heartbeat, "w1", 2, "draining") == (True, True)
    first, second = run(all_workers)
    assert (first.id, first.running, first.state, first.alive) == ("w1", 2, "draining", True)
    assert first.serves("a") and not first.serves("b") and second.serves("b")
    assert run(retention.prune_workers, 3600.0) == 0
    held = put_and_take(run)
    assert run(deregister, "w1") == 1, "what it still owned is put back"
    assert (run(job, held.id).state, run(job, held.id).attempt) == ("ready", 0)
    eventually(lambda: run(retention.prune_workers, 0.0) == 1)
    assert run(all_workers) == []
