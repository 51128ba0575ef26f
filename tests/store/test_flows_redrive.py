"""A redrive in a flow: what died of a job comes back with it, and is counted anew."""

from __future__ import annotations

import pytest

from outlast import TooLate
from outlast.model.flow import chain, group
from outlast.ops import operate, report
from outlast.ops.cancel_flow import declare, go_on
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
    assert sorted(run(operate.redrive, [two.id], "ann")) == sorted([two.id, three.id, four.id])
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
        with pytest.raises(TooLate, match="retry that one"):
            run(operate.redrive_one, dead.id, "ann")
        assert run(operate.redrive, [dead.id], "ann") == []
    assert state(run, one, two, three) == ["dead"] * 3
    assert run(report.history, three.id)[1] == []
    run(operate.redrive_one, one.id, "ann")
    assert state(run, one, two, three) == ["ready", "waiting", "waiting"]


def test_a_follower_that_failed_by_itself_runs_again_at_once(run: Run) -> None:
    """R051: what it waits for has succeeded and stays so."""
    one, two = lay(run, chain(*calls(2)))
    end_one(run)
    end_one(run, "permanent")
    assert run(operate.redrive, [two.id], "ann") == [two.id]
    assert state(run, one, two) == ["succeeded", "ready"]
    assert (run(report.job, two.id).waits_for, results(run, two)) == (0, [one.id])


def test_who_waits_for_any_end_waits_again(run: Run) -> None:
    """R070: counted as ended, and then it is not: the count goes up again."""
    one, two, last = lay(run, group(*calls(2)).then(call(9), when="finished"))
    end_one(run, "permanent")
    assert run(report.job, last.id).waits_for == 1
    run(operate.redrive, [one.id], "ann")
    assert run(report.job, last.id).waits_for == 2
    assert end_all(run) == 3
    assert state(run, two, last) == ["succeeded"] * 2


def test_who_has_started_is_not_called_back(run: Run) -> None:
    """R111: a callback that ran on what there was is not undone by a later redrive."""
    one, last = lay(run, chain(call(1)).then(call(9), when="finished"))
    end_one(run, "permanent")
    (held,) = take(run)
    run(operate.redrive, [one.id], "ann")
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
    run(operate.redrive, [dead.id], "ann")
    assert run(report.job, last.id).waits_for == 2
    end_one(run)
    run(operate.cancel, busy.id, "ann", "")
    assert state(run, last) == ["ready"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_whole_flow_comes_back(run: Run, database: Database, order: int) -> None:
    """R051, R116: cancelled as a whole, redriven as a whole, whichever comes first."""
    jobs = lay(run, group(*calls(3)).then(call(8), call(9)))
    why = run(declare, jobs[0].flow, "ann", "")
    while run(go_on, jobs[0].flow, why).left:
        pass
    assert states(database) == ["cancelled"] * 5
    for one in [job.id for job in jobs][::order]:
        run(operate.redrive, [one], "ann")
    assert state(run, *jobs) == ["ready"] * 3 + ["waiting"] * 2
    assert end_all(run) == 5
    assert states(database) == ["succeeded"] * 5


def test_a_flow_that_came_back_can_be_cancelled_again(run: Run, database: Database) -> None:
    """R117: by the same words."""
    jobs = lay(run, chain(*calls(3)))
    for _ in range(2):
        why = run(declare, jobs[0].flow, "ann", "")
        while run(go_on, jobs[0].flow, why).left:
            pass
        assert states(database) == ["cancelled"] * 3
        run(operate.redrive, [job.id for job in jobs], "ann")
        assert states(database) == ["ready", "waiting", "waiting"]
