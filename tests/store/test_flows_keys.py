"""Jobs of a flow may have keys: one that stands already, or twice in one call, is one job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from outlast import ClaimLost, InvalidFlow, KeyConflict, PrerequisiteFailed
from outlast.model.claim import Claim
from outlast.model.flow import Flow, chain, group
from outlast.model.flow_builder import build_jobs
from outlast.model.outcome import Transition
from outlast.ops import job_actions, report
from outlast.ops.finish import finish, finish_with_keys
from tests.store.conftest import Run
from tests.store.flowing import call, end_all, end_one, lay, left, results, state, stuck
from tests.store.jobs import end, ending, states, take
from tests.support import Database


@pytest.mark.parametrize("before", ["ready", "running", "succeeded"])
def test_a_job_that_stands_becomes_the_prerequisite(run: Run, before: str) -> None:
    """R003, R096: a job that comes after a keyed one of its call waits for the one that exists."""
    (standing,) = lay(run, call(1, key="k"))
    held = take(run)[0] if before != "ready" else None
    if held is not None and before == "succeeded":
        end(run, held, result="5")
    first = call(1, key="k")
    same, last = lay(run, first, call(2, after=first))
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
        lay(run, *(before := [call(0), call(1, key="k")]), call(2, after=before))
    assert states(database) == ["dead"]
    *_, last = lay(run, *before, call(2, after=before, when="finished"))
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


# Whoever waits for a job waits for what it adds, also if that stands already (`join=True`)


def adding(held: Claim, *items: Any) -> Transition:
    return ending(held, jobs=tuple(build_jobs(items, held.flow, held.id)), result="1")


@pytest.fixture(params=[finish, finish_with_keys])
def hand_in(request: pytest.FixtureRequest, run: Run) -> Callable[[Transition], Any]:
    """As part of a batch, or alone."""
    if request.param is finish:
        return lambda transition: run(finish, [transition])
    return lambda transition: run(finish_with_keys, transition)


Hand = Callable[[Transition], Any]


@pytest.mark.parametrize("before", ["scheduled", "ready", "running", "succeeded"])
def test_a_job_that_stands_is_joined(run: Run, hand_in: Hand, before: str) -> None:
    """R003, R107: the follower waits for the one that is there, and reads what it gave."""
    delay = 60.0 if before == "scheduled" else None
    (standing,) = lay(run, call(1, key="k", queue="q", delay=delay))
    (other,) = take(run, queue="q") if before in ("running", "succeeded") else (None,)
    if other is not None and before == "succeeded":
        end(run, other, result="5")
    _, last = lay(run, chain(call(0), call(9)))
    (held,) = take(run)
    hand_in(adding(held, call(1, key="k", queue="q"), call(2, queue="q")))
    ended = before == "succeeded"
    assert run(report.job, last.id).waits_for == (1 if ended else 2)
    if before == "scheduled":
        run(job_actions.cancel, standing.id, "ann", "")
        assert state(run, last) == ["dead"]
        return
    for one in ([other] if before == "running" else []) + take(run, 9, queue="q"):
        assert state(run, last) == ["waiting"]
        end(run, one, result="5")
    assert state(run, last) == ["ready"]
    assert results(run, last) == [1, 5, 5]


def test_one_that_stands_dead_cannot_be_joined(run: Run, hand_in: Hand, database: Database) -> None:
    """R093: that is said, and nothing is done; who waits for any end needs nothing."""
    lay(run, call(1, key="k"))
    end_one(run, "permanent")
    _, last = lay(run, chain(call(0), call(9)))
    (held,) = take(run)
    with pytest.raises(PrerequisiteFailed, match="is dead"):
        hand_in(adding(held, call(2), call(1, key="k")))
    assert states(database) == ["dead", "running", "waiting"]
    end(run, held)
    assert state(run, last) == ["ready"]
    _, final = lay(run, chain(call(0)).then(call(9, queue="final"), when="finished"))
    (held,) = take(run, 9)[1:]
    hand_in(adding(held, call(1, key="k")))
    assert state(run, final) == ["ready"]
    assert results(run, final) == [1, None]


def test_who_would_wait_for_itself_is_refused(run: Run, hand_in: Hand, database: Database) -> None:
    """R107: the job that stands is the follower, or comes after it, however far down."""
    parts = [call(0), *[call(n, key=f"k{n}") for n in (1, 2, 3)]]
    lay(run, chain(*parts))
    (held,) = take(run)
    before = left(database)
    for n in (1, 2, 3):
        with pytest.raises(InvalidFlow, match=f"'k{n}'"):
            hand_in(adding(held, call(n, key=f"k{n}")))
    assert left(database) == before
    _, other = lay(run, chain(call(5, delay=60.0), call(6, key="other")))
    hand_in(adding(held, call(6, key="other")))
    assert state(run, other) == ["waiting"], "one that waits for something else can be joined"
    assert stuck(database) == 0


def test_a_twin_is_joined_for_both(run: Run, hand_in: Hand) -> None:
    """R107: the first of them was added without a word of joining."""
    _, last = lay(run, chain(call(0), call(9)))
    (held,) = take(run)
    first = build_jobs([call(1, key="k", queue="q")], held.flow)
    second = build_jobs([call(1, key="k", queue="q")], held.flow, held.id)
    hand_in(ending(held, jobs=(*first, *second)))
    assert state(run, last) == ["waiting"]
    (added,) = take(run, 9, queue="q")
    end(run, added)
    assert state(run, last) == ["ready"]


def test_what_is_joined_twice_is_waited_for_once(run: Run) -> None:
    """R095: a finish whose answer got lost is sent again."""
    (standing,) = lay(run, call(1, key="k", queue="q"))
    _, last = lay(run, chain(call(0), call(9)))
    (held,) = take(run)
    handed_in = adding(held, call(1, key="k", queue="q"))
    run(finish_with_keys, handed_in)
    with suppress(ClaimLost):
        run(finish_with_keys, handed_in)
    assert run(report.job, last.id).waits_for == 1
    end(run, take(run, queue="q")[0])
    assert state(run, standing, last) == ["succeeded", "ready"]
