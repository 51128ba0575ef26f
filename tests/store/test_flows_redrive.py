"""A redrive in a flow: what died of a job comes back with it, and is counted anew."""

from __future__ import annotations

from collections import Counter

import pytest

from outlast import Outlast, TooLate
from outlast.model.flow import chain, group
from outlast.ops import job_actions, report, retry_flow
from outlast.ops.cancel_flow import cancel_page, mark_cancelled, unfinished_cancels
from outlast.ops.flow_report import flow
from tests.store.conftest import Run
from tests.store.flowing import call, calls, end_all, end_one, lay, results, state
from tests.store.jobs import end, states, take
from tests.support import Database


def test_a_dead_child_brings_back_all_that_died_of_it(run: Run) -> None:
    """R051, R070: down to the last follower; those that had succeeded are not done again."""
    one, two, three, four = lay(run, group(call(1), call(2)).then(call(3), call(4)))
    (held, other) = take(run, 2)
    end(run, held, result="1")
    end(run, other, "permanent")
    assert state(run, one, two, three, four) == ["succeeded", "dead", "dead", "dead"]
    assert sorted(run(job_actions.redrive, [two.id], "ann")) == sorted([two.id, three.id, four.id])
    assert state(run, one, two, three, four) == ["succeeded", "ready", "waiting", "waiting"]
    assert run(report.job, three.id).waits_for == 1
    assert end_all(run) == 3
    assert results(run, three) == [1, two.id]
    assert run(flow, one.flow).state == "succeeded"


def test_a_dead_follower_alone_cannot_come_back(run: Run) -> None:
    """R051: what it waits for stays dead: that is said, and it stays as it was."""
    one, two, three = lay(run, chain(*calls(3)))
    end_one(run, "permanent")
    for dead in (two, three):
        with pytest.raises(TooLate, match="retry that job"):
            run(job_actions.redrive_one, dead.id, "ann")
        assert run(job_actions.redrive, [dead.id], "ann") == []
    assert state(run, one, two, three) == ["dead"] * 3
    assert run(report.history, three.id)[1] == []
    run(job_actions.redrive_one, one.id, "ann")
    assert state(run, one, two, three) == ["ready", "waiting", "waiting"]


def test_a_follower_that_failed_by_itself_runs_again_at_once(run: Run) -> None:
    """R051: what it waits for has succeeded and stays so."""
    one, two = lay(run, chain(*calls(2)))
    end_one(run)
    end_one(run, "permanent")
    assert run(job_actions.redrive, [two.id], "ann") == [two.id]
    assert state(run, one, two) == ["succeeded", "ready"]
    assert (run(report.job, two.id).waits_for, results(run, two)) == (0, [one.id])


def test_who_waits_for_any_end_waits_again(run: Run) -> None:
    """R070: counted as ended, and then it is not: the count goes up again."""
    one, two, last = lay(run, group(*calls(2)).then(call(9), when="finished"))
    end_one(run, "permanent")
    assert run(report.job, last.id).waits_for == 1
    run(job_actions.redrive, [one.id], "ann")
    assert run(report.job, last.id).waits_for == 2
    assert end_all(run) == 3
    assert state(run, two, last) == ["succeeded"] * 2


def test_who_has_started_is_not_called_back(run: Run) -> None:
    """R111: a callback that ran on what there was is not undone by a later redrive."""
    one, last = lay(run, chain(call(1)).then(call(9), when="finished"))
    end_one(run, "permanent")
    (held,) = take(run)
    run(job_actions.redrive, [one.id], "ann")
    assert state(run, one, last) == ["ready", "running"]
    end(run, held)
    end_all(run)
    assert state(run, one, last) == ["succeeded"] * 2
    assert run(report.job, last.id).attempt == 1


def test_a_late_comer_is_told_of_a_second_life(run: Run) -> None:
    """R070: it was after one that had died; that one lives again, and then it is waited for."""
    (dead,) = lay(run, call(1))
    end_one(run, "permanent")
    (busy,) = lay(run, call(2, delay=60.0))
    (last,) = lay(run, call(9, after=[dead, busy], when="finished"))
    assert run(report.job, last.id).waits_for == 1
    run(job_actions.redrive, [dead.id], "ann")
    assert run(report.job, last.id).waits_for == 2
    end_one(run)
    run(job_actions.cancel, busy.id, "ann", "")
    assert state(run, last) == ["ready"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_whole_flow_comes_back(run: Run, database: Database, order: int) -> None:
    """R051, R116: cancelled as a whole, redriven as a whole, whichever comes first."""
    jobs = lay(run, group(*calls(3)).then(call(8), call(9)))
    why = run(mark_cancelled, jobs[0].flow, "ann", "")
    while run(cancel_page, jobs[0].flow, why).left:
        pass
    assert states(database) == ["cancelled"] * 5
    for one in [job.id for job in jobs][::order]:
        run(job_actions.redrive, [one], "ann")
    assert state(run, *jobs) == ["ready"] * 3 + ["waiting"] * 2
    assert end_all(run) == 5
    assert states(database) == ["succeeded"] * 5


def test_a_flow_that_came_back_can_be_cancelled_again(run: Run, database: Database) -> None:
    """R117: by the same words."""
    jobs = lay(run, chain(*calls(3)))
    for _ in range(2):
        why = run(mark_cancelled, jobs[0].flow, "ann", "")
        while run(cancel_page, jobs[0].flow, why).left:
            pass
        assert states(database) == ["cancelled"] * 3
        run(job_actions.redrive, [job.id for job in jobs], "ann")
        assert states(database) == ["ready", "waiting", "waiting"]


@pytest.mark.parametrize("fail_fast", [1, 2])
def test_a_team_that_came_back_breaks_again(verb: Run, app: Outlast, fail_fast: int) -> None:
    """R097, R120: with as many failures as the first time, none of which counts twice."""
    run = app.store.run
    *team, last = lay(run, group(*calls(6), fail_fast=fail_fast).then(call(9, queue="last")))
    for _ in range(3):
        for _ in range(fail_fast):
            assert run(unfinished_cancels) == []
            end_one(run, "permanent")
        ((broken, why),) = run(unfinished_cancels)
        while run(cancel_page, broken, why).left:
            pass
        counted = Counter(state(run, *team))
        assert counted == {"dead": fail_fast, "cancelled": 6 - fail_fast}
        assert state(run, last) == ["dead"]
        assert verb("retry_flow", last.flow) == 7
        assert state(run, *team, last) == ["ready"] * 6 + ["waiting"]
    assert end_all(run) == 6
    assert state(run, *team, last) == ["succeeded"] * 6 + ["ready"]


def test_a_failure_amid_a_retry_breaks_the_team_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R097, R120: a large flow comes back a page at a time. What was broken, or cancelled, again
    before the last page stays so, and no page opens it once more; the others come back."""
    monkeypatch.setattr(retry_flow, "PAGE_JOBS", 3)
    parts = group(call(0, queue="q"), group(*calls(5), fail_fast=True), call(9, queue="q"))
    first, *team, last = lay(run, parts)

    def break_it() -> None:
        end_one(run, "permanent")
        ((broken, why),) = run(unfinished_cancels)
        while run(cancel_page, broken, why).left:
            pass
        assert Counter(state(run, *team)) == {"dead": 1, "cancelled": 4}

    for held in take(run, 2, queue="q"):
        end(run, held, "permanent")
    break_it()
    run(retry_flow.reopen, first.flow, "ann")
    cursor, _ = run(retry_flow.redrive_page, first.flow, None, "ann")
    assert state(run, first, *team[:2]) == ["ready"] * 3
    break_it()
    while cursor is not None:
        cursor, _ = run(retry_flow.redrive_page, first.flow, cursor, "ann")
    assert Counter(state(run, *team)) == {"dead": 1, "cancelled": 4}
    assert state(run, first, last) == ["ready"] * 2


def test_a_flow_that_is_cancelled_amid_its_retry_stays_so(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R116: the cancel was the last word."""
    monkeypatch.setattr(retry_flow, "PAGE_JOBS", 2)
    jobs = lay(run, group(*calls(5)))

    def cancel() -> None:
        why = run(mark_cancelled, jobs[0].flow, "ann", "")
        while run(cancel_page, jobs[0].flow, why).left:
            pass

    cancel()
    run(retry_flow.reopen, jobs[0].flow, "ann")
    cursor, _ = run(retry_flow.redrive_page, jobs[0].flow, None, "ann")
    assert states(database).count("ready") == 2
    cancel()
    while cursor is not None:
        cursor, _ = run(retry_flow.redrive_page, jobs[0].flow, cursor, "ann")
    assert states(database) == ["cancelled"] * 5
    assert run(flow, jobs[0].flow).state == "cancelled"


def test_a_job_that_is_tried_again_and_fails_again_counts_once(run: Run) -> None:
    """R097: two failures are allowed, and one job cannot be both of them."""
    *team, _ = lay(run, group(*calls(5), fail_fast=3).then(call(9)))
    for _ in range(4):
        (held,) = take(run)
        end(run, held, "permanent")
        run(job_actions.redrive, [held.id], "ann")
    assert run(unfinished_cancels) == []
    for _ in range(3):
        assert run(unfinished_cancels) == []
        end_one(run, "permanent")
    assert len(run(unfinished_cancels)) == 1
    assert len(team) == 5
