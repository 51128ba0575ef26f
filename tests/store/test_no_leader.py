"""There is no leader: maintenance is a row that anybody takes for a while, and what a process had
decided before it stood still is compared with the rows again when it is written."""

from __future__ import annotations

import pytest

from outlast.ops import audit, duties, job_actions, retention
from outlast.ops.duties import DutyTally
from outlast.ops.operation import Op, Rows, Statement
from outlast.ops.reclaim import decide_by_row, reclaim, release_lost, release_overdue
from outlast.ops.report import history, job
from outlast.store import Store
from tests.store.jobs import end, end_leases, put_and_take, states, table, take
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def read() -> Op[Rows]:
    """The claims of a worker, as a sweep reads them before it takes them back."""
    rows: Rows = yield Statement("jobs_of_workers", {"workers": '["w1"]', "limit": 10, "skip": 0})
    return rows


def test_a_duty_whose_taker_is_gone_is_due_again_by_the_databases_clock(
    store: Store, database: Database
) -> None:
    """R157: a row and no session's lock, so it works through a pooler; whoever took it and stood
    still or lost its line keeps it until it is due again, and not longer."""
    assert store.run(duties.take_duty, "audit", 60.0, "gone")
    assert not store.run(duties.take_duty, "audit", 60.0, "next")
    past = "1" if database.is_sqlite else "now() - interval '1 second'"
    database.rows(f"UPDATE {table(database, 'duty')} SET next_at = {past}")
    assert store.run(duties.take_duty, "audit", 60.0, "next")
    assert not store.run(duties.take_duty, "audit", 60.0, "gone"), "it is the other's now"


def test_a_duty_whose_taker_was_not_answered_is_still_its_own(
    store: Store, database: Database
) -> None:
    """R170: the row names the taker and a moment that it does not know of; so it takes the duty
    once more, with or without an earlier one that it was told of, and nobody else does."""
    unheard = store.run(duties.take_duty, "audit", 60.0, "w1")
    heard = store.run(duties.take_duty, "audit", 60.0, "w1")
    assert unheard is not None and heard is not None and heard >= unheard
    assert store.run(duties.take_duty, "audit", 60.0, "w1", heard) is None
    past = "1" if database.is_sqlite else "now() - interval '1 second'"
    database.rows(f"UPDATE {table(database, 'duty')} SET next_at = {past}")
    assert store.run(duties.take_duty, "audit", 60.0, "w1", heard) is not None, "and is not heard"
    assert store.run(duties.take_duty, "audit", 60.0, "w2") is None
    again = store.run(duties.take_duty, "audit", 60.0, "w1", heard)
    assert again is not None
    assert store.run(duties.take_duty, "audit", 60.0, "w1", again) is None


def test_a_sweep_that_stood_still_takes_nothing_back_that_is_in_other_hands(
    store: Store, database: Database
) -> None:
    """R158: it had read which claims were lost, or past their deadline; until it goes on, somebody
    else took them back, claimed them and finished one. Its writes are refused, one by one."""
    run = store.run
    for queue in ("a", "b"):
        put_and_take(run, queue=queue, timeout=0.001)
    end_leases(database)
    seen = run(read)
    assert (len(seen), run(reclaim).healed) == (2, 2)
    owners = [take(run, queue=queue, worker="w2")[0] for queue in ("a", "b")]
    end(run, owners[0])
    before = [run(job, owner.id) for owner in owners]
    for late in (_taken_back, _past_deadline):
        swept = run(late, seen)
        assert (swept.found, swept.healed, swept.skipped) == (2, 0, 2)
    assert [run(job, owner.id) for owner in owners] == before
    assert [len(run(history, owner.id)[0]) for owner in owners] == [2, 1]


def _taken_back(rows: Rows) -> Op[object]:
    return (yield from release_lost(rows, "stopped renewing"))


def _past_deadline(rows: Rows) -> Op[object]:
    return (yield from release_overdue(rows, decide_by_row))


def test_a_repair_that_stood_still_changes_nothing_that_is_sound_again(
    store: Store, database: Database
) -> None:
    """R158: every repair of the audit looks again at the rows that were found; what was healed,
    redriven or ended meanwhile stays as it is."""
    run = store.run
    running, queued, ended = (put_and_take(run, queue=name) for name in ("a", "b", "c"))
    end(run, queued, "released")
    end(run, ended, "permanent")
    before = [run(job, one.id) for one in (running, queued, ended)]
    ids = [one.id for one in before]
    for check in audit.checks({"succeeded": 1e9, "cancelled": 1e9}, 1e9, 60.0, 0.5):
        assert run(check.repair, ids) == 0, check.name
    assert [run(job, id) for id in ids] == before


def test_a_prune_that_stood_still_leaves_what_got_a_new_life(
    store: Store, database: Database
) -> None:
    """R158: what to remove is decided in the statement that removes it."""
    run = store.run
    held = put_and_take(run)
    end(run, held, "permanent")
    assert run(job_actions.redrive, [held.id], "me")
    assert run(retention.prune, "dead", -1.0, 10) == 0
    assert states(database) == ["ready"]


def test_a_late_report_of_a_duty_gives_it_to_nobody(store: Store, database: Database) -> None:
    """R158: who stood still adds to what was counted; when the duty is due, and whose it is, stays
    as the one after it has set it."""
    assert store.run(duties.take_duty, "audit", 60.0, "old")
    set_past = "1" if database.is_sqlite else "now() - interval '1 second'"
    database.rows(f"UPDATE {table(database, 'duty')} SET next_at = {set_past}")
    assert store.run(duties.take_duty, "audit", 60.0, "new")
    query = f"SELECT next_at, worker FROM {table(database, 'duty')}"
    before = database.rows(query)
    store.run(duties.report_duty, "audit", DutyTally(found=1))
    assert database.rows(query) == before
    assert before[0][1] == "new"
