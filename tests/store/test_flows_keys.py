"""Jobs of a flow may have keys: one that stands already, or twice in one call, is one job."""

from __future__ import annotations

import pytest

from outlast import InvalidFlow, KeyConflict, PrerequisiteFailed
from outlast.model.flow import Flow, chain, group
from outlast.ops import report
from tests.store.conftest import Run
from tests.store.flowing import call, end_all, end_one, lay, left, results, state
from tests.store.jobs import end, states, take
from tests.support import Database


@pytest.mark.parametrize("before", ["ready", "running", "succeeded"])
def test_a_job_that_stands_becomes_the_prerequisite(run: Run, before: str) -> None:
    """R003, R096: whoever asked for the flow waits for the one that is there."""
    (standing,) = lay(run, call(1, key="k"))
    held = take(run)[0] if before != "ready" else None
    if held is not None and before == "succeeded":
        end(run, held, result="5")
    same, last = lay(run, chain(call(1, key="k"), call(2)))
    assert same.id == standing.id
    if before != "succeeded":
        assert state(run, last) == ["waiting"]
        end(run, held or take(run)[0], result="5")
    assert state(run, last) == ["ready"]
    assert results(run, last) == [5]


def test_one_that_stands_dead_cannot_be_waited_for(run: Run, database: Database) -> None:
    """R093: then nothing of the call is made."""
    lay(run, call(1, key="k"))
    end_one(run, "permanent")
    with pytest.raises(PrerequisiteFailed):
        lay(run, group(call(0), call(1, key="k")).then(call(2)))
    assert states(database) == ["dead"]
    *_, last = lay(run, group(call(0), call(1, key="k")).then(call(2), when="finished"))
    end_one(run)
    assert state(run, last) == ["ready"]


def test_twins_of_one_call_are_waited_for_once(run: Run, database: Database) -> None:
    """R092: two names for one job: one edge, one count."""
    one, twin, last = lay(run, group(call(1, key="k"), call(1, key="k")).then(call(2)))
    assert one.id == twin.id
    assert left(database) == {"job": 2, "edge": 1, "flow": 1}
    assert run(report.job, last.id).waits_for == 1
    end_one(run)
    assert state(run, last) == ["ready"]
    assert results(run, last) == [one.id]


def test_whoever_comes_after_the_second_twin_comes_after_the_first(run: Run) -> None:
    graph = Flow()
    graph.add(call(1, key="k"))
    graph.add(call(2), after=graph.add(call(1, key="k")))
    one, twin, last = lay(run, graph)
    assert one.id == twin.id
    assert state(run, one, last) == ["ready", "waiting"]
    assert end_all(run) == 2
    assert results(run, last) == [one.id]


def test_a_milestone_over_twins_is_reached(run: Run) -> None:
    graph = Flow()
    for n in range(4):
        graph.add(call(n % 2, key=f"k{n % 2}"))
    graph.milestone(1.0, call(9))
    last = lay(run, graph)[-1]
    assert end_all(run) == 3
    assert state(run, last) == ["succeeded"]


def test_twins_that_would_wait_for_each_other_are_refused(run: Run, database: Database) -> None:
    """R107: the cycle shows only once they are one."""
    graph = Flow()
    graph.add(call(1, key="k"), after="b")
    graph.add(call(2), name="b", after="a")
    graph.add(call(1, key="k"), name="a")
    with pytest.raises(InvalidFlow, match="'k'"):
        lay(run, graph)
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}


def test_a_key_of_another_call_refuses_the_whole_flow(run: Run, database: Database) -> None:
    """R093"""
    lay(run, call(1, key="k"))
    with pytest.raises(KeyConflict):
        lay(run, group(call(0), call(7, key="k")).then(call(2)))
    assert left(database) == {"job": 1, "edge": 0, "flow": 0}
