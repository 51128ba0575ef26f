"""Jobs that wait for each other: who starts when, and what it reads."""

from __future__ import annotations

import pytest

from outlast import InvalidFlow, JobNotFound, Outlast, PrerequisiteFailed
from outlast.model.claim import Claim
from outlast.model.flow import Flow, chain, group
from outlast.ops import duties, job_actions, report
from outlast.ops.cancel_flow import cancel_page, unfinished_cancels
from outlast.ops.finish import finish
from outlast.ops.flow_report import flow
from outlast.ops.reclaim import reclaim, reclaim_overdue
from tests.store.conftest import Run
from tests.store.flowing import (
    call,
    calls,
    end_all,
    end_one,
    lay,
    left,
    number,
    results,
    state,
    stuck,
)
from tests.store.jobs import end, end_leases, ending, new, put, put_and_take, set_all, states, take
from tests.support import Database


def test_a_chain_goes_step_by_step(run: Run, database: Database) -> None:
    """R064, R103: the next stage is ready with the commit that ends the one before."""
    jobs = lay(run, chain(*calls(3)))
    for n, job in enumerate(jobs):
        assert state(run, *jobs[n:]) == ["ready"] + ["waiting"] * (2 - n)
        assert end_one(run).id == job.id
    assert states(database) == ["succeeded"] * 3
    assert results(run, jobs[2]) == [jobs[1].id]
    assert run(flow, jobs[0].flow).state == "succeeded"


def test_a_later_stage_that_dies_leaves_the_earlier_result(run: Run) -> None:
    """R103: stage 1 is readable, and the flow says partial."""
    one, two = lay(run, chain(call(1, max_attempts=7), call(2, timeout=3.0)))
    end_one(run)
    (held,) = take(run)
    assert (held.timeout, held.attempt, held.max_attempts) == (3.0, 1, 5)
    end(run, held, "permanent")
    done = run(report.job, one.id)
    assert (done.state, done.result, done.max_attempts) == ("succeeded", one.id, 7)
    assert run(report.job, two.id).state == "dead"
    assert run(flow, one.flow).state == "partial"


def test_a_fan_in_starts_once_with_all_results_in_order(run: Run) -> None:
    """R092: however they end."""
    *children, last = lay(run, group(*calls(10)).then(call(99)))
    held = take(run, 10)
    for one in reversed(held):
        assert state(run, last) == ["waiting"]
        end(run, one, result=f'"{one.id}"')
    (follower,) = take(run, 10)
    assert follower.id == last.id
    assert results(run, follower) == [child.id for child in children]


def test_a_fan_out_of_nothing_goes_on_at_once(run: Run) -> None:
    """R098: the callback once, with nothing to read; what came before an empty group is kept."""
    (alone,) = lay(run, group().then(call(1)))
    first, then = lay(run, chain(call(2), group(), call(3)))
    assert state(run, alone, first, then) == ["ready", "ready", "waiting"]
    assert results(run, alone) == []
    assert end_all(run) == 3
    assert results(run, then) == [first.id]


def test_three_levels_of_ten_end_in_one_callback(run: Run, database: Database) -> None:
    """R107: each middle one after its ten, the root after the ten middle ones."""
    tree = group(*[group(*calls(10)).then(call(50 + n)) for n in range(10)]).then(call(99))
    jobs = lay(run, tree)
    assert states(database).count("ready") == 100
    assert end_all(run) == 111
    root = jobs[-1]
    assert results(run, root) == [job.id for job in jobs if 50 <= number(job) < 60]
    assert set(states(database)) == {"succeeded"}


POLICIES = {
    "all must succeed": (None, {"succeeded": 9, "dead": 2}, "dead"),
    "collect all": ("finished", {"succeeded": 10, "dead": 1}, "succeeded"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_one_of_ten_fails(run: Run, policy: str) -> None:
    """R097: the callback never runs on part of the results unless that was asked for."""
    when, counts, end_of_last = POLICIES[policy]
    last = lay(run, group(*calls(10)).then(call(99), when=when))[-1]
    end(run, take(run)[0], "permanent")
    end_all(run)
    counted = {name: n for name, n in run(flow, last.flow).counts.items() if n}
    assert counted == counts
    assert state(run, last) == [end_of_last]
    if when is None:
        error = run(report.job, last.id).error
        assert error["type"] == "PrerequisiteFailed" and "is dead" in error["message"]
    else:
        assert results(run, last).count(None) == 1


@pytest.mark.parametrize(("fail_fast", "allowed"), [(True, 0), (2, 1), (3, 2)])
def test_so_many_failures_have_the_rest_cancelled(run: Run, fail_fast: int, allowed: int) -> None:
    """R097, R120: with the last one that is allowed nothing happens, with the next it is said; who
    looks for such then cancels the rest, and whoever runs is asked to stop."""
    *_, last = lay(run, group(*calls(10), fail_fast=fail_fast).then(call(99), when="finished"))
    running = take(run)[0]
    for _ in range(allowed):
        end_one(run, "permanent")
        assert run(unfinished_cancels) == []
    end_one(run, "permanent")
    ((team, why),) = run(unfinished_cancels)
    assert why.endswith("is dead")
    done = run(cancel_page, team, why)
    assert (done.ended, done.stopping) == (10 - 2 - allowed, 1)
    assert not run(cancel_page, team, why).left
    assert run(unfinished_cancels) == []
    assert state(run, running, last) == ["running", "waiting"]
    end(run, running, "failed")
    assert state(run, running, last) == ["cancelled", "ready"]


def test_milestones_come_once_each(run: Run) -> None:
    """R108: at so many of those before it, however they end."""
    graph = Flow()
    for n in range(10):
        graph.add(call(n))
    marks = [graph.milestone(share / 10, call(100 + share)) for share in (1, 5, 10)]
    *_, first, half, whole = lay(run, graph)
    assert len(marks) == 3
    seen = []
    for n, held in enumerate(take(run, 10)):
        end(run, held, "permanent" if n % 2 else "succeeded")
        seen.append([one == "ready" for one in state(run, first, half, whole)])
    assert [sum(column) for column in zip(*seen, strict=True)] == [10, 6, 1]
    assert sorted(number(one) for one in take(run, 10)) == [101, 105, 110]


def test_a_completion_that_comes_again_counts_once(run: Run) -> None:
    """R095: each one three times, and with fences that are old or made up."""

    *_, last = lay(run, group(*calls(4)).then(call(99)))
    held = take(run, 4)
    for n, one in enumerate(held):
        made_up = one._replace(fence=one.fence + 1)
        stale = one._replace(fence=one.fence - 1)
        ends = [ending(claim) for claim in (one, one, one, made_up, stale)]
        for ended in ends:
            run(finish, [ended])
        assert run(report.job, last.id).waits_for == 3 - n
    assert state(run, last) == ["ready"]
    assert run(report.job, last.id).attempt == 0


def test_a_new_job_after_one_that_stands(run: Run) -> None:
    """R096: whatever state that one is in: it is waited for, it has ended, or it cannot be."""
    for before in ("ready", "running", "scheduled", "waiting", "succeeded"):
        for needs in ("succeeded", "finished"):
            other = _standing(run, before)
            (job,) = lay(run, call(2, after=other, when=needs, queue="after"))
            ended = before == "succeeded"
            assert state(run, job) == ["ready" if ended else "waiting"], before
            if before == "ready":
                take(run)
            if before in ("ready", "running"):
                assert end_standing(run, other) == "succeeded"
                assert state(run, job) == ["ready"]
                assert results(run, job) == [7]
    for before in ("dead", "cancelled"):
        other = _standing(run, before)
        with pytest.raises(PrerequisiteFailed, match=before):
            lay(run, call(2, after=other))
        (job,) = lay(run, call(2, after=other, when="finished", queue="after"))
        assert state(run, job) == ["ready"]


def end_standing(run: Run, id: str) -> str:
    job = run(report.job, id)
    held = Claim(
        id, job.fence, "work", "{}", job.attempt, 0, 0, 3, 3, "default", "default", 0, 0.0, 0.0,
        0.0, None, None, None, None, "w1",
    )  # fmt: skip
    end(run, held, "succeeded", result="7")
    return str(run(report.job, id).state)


def _standing(run: Run, wanted: str) -> str:
    match wanted:
        case "scheduled":
            return str(put(run, delay=60.0)[0].id)
        case "ready":
            return str(put(run)[0].id)
        case "waiting":
            return lay(run, chain(call(0, delay=60.0), call(1)))[1].id
    held = put_and_take(run)
    if wanted == "cancelled":
        run(job_actions.cancel, held.id, "ann", "")
    outcomes = {"succeeded": "succeeded", "dead": "permanent", "cancelled": "cancelled"}
    if wanted in outcomes:
        end(run, held, outcomes[wanted])
    return held.id


def test_what_cannot_be_is_refused_whole(run: Run, database: Database) -> None:
    """R093, R107: a cycle, a name nobody has, a job that is not there: every problem is named, and
    nothing is inserted."""
    graph = Flow()
    graph.add(call(1), name="a", after="c")
    graph.add(call(2), name="b", after="a")
    graph.add(call(3), name="c", after="b")
    graph.add(call(4), name="d")
    with pytest.raises(InvalidFlow) as cycle:
        lay(run, graph)
    assert len(cycle.value.problems) == 3
    graph = Flow()
    graph.add(call(1), after=["x", "y"])
    graph.add(call(2), name="b", after="z")
    with pytest.raises(InvalidFlow) as unknown:
        lay(run, graph)
    assert len(unknown.value.problems) == 3
    with pytest.raises(JobNotFound):
        lay(run, call(0), call(1, after=new().id))
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}


def test_whoever_waits_for_a_job_waits_for_what_it_adds(run: Run) -> None:
    """`ctx.enqueue(…, join=True)`: the callback of a fan-out that grows while it runs."""
    from outlast.model.flow_builder import build_jobs

    one, two, last = lay(run, group(call(1), call(2)).then(call(99)))
    held, other = take(run, 2)
    grown = build_jobs([chain(call(3), call(4)), call(5)], held.flow, held.id)
    run(finish, [ending(held, jobs=tuple(grown))])
    assert run(report.job, last.id).waits_for == 3
    end(run, other)
    for waiting in (2, 1, 0):
        assert state(run, last) == ["waiting"]
        end_one(run)
        left_over = run(report.job, last.id).waits_for
        assert left_over <= waiting
    assert state(run, last) == ["ready"]
    ids = [one.id, two.id, grown[1].id, grown[2].id]
    assert [result for result in results(run, last) if result] == ids[2:]
    assert run(report.job, last.id).flow == run(report.job, grown[0].id).flow


def test_what_comes_later_and_what_runs_together_are_counted_alike(
    run: Run, database: Database
) -> None:
    """R102: a job with a delay of its own waits for others first and for its time then."""
    first, late = lay(run, chain(call(1), call(2, delay=3600.0)))
    end_one(run)
    assert state(run, first, late) == ["succeeded", "scheduled"]
    assert stuck(database) == 0


def test_a_waiting_job_says_what_for_and_a_dead_one_of_whom(verb: Run, app: Outlast) -> None:
    """R165: how many of how many, the first few by name; and at the other end of any number of
    steps, the one that it began with."""
    run = app.store.run
    *children, last, further = lay(run, chain(group(*calls(10)), call(8), call(9)))
    first, second, *_ = held = take(run, 2)
    end(run, second)
    told = verb("explain", last.id)
    assert told.startswith("It waits for 9 of its 10 prerequisites: work ")
    assert f"work {first.id} (running)" in told and told.endswith(" and 6 more.")
    assert verb("explain", further.id) == (
        f"It waits for 1 of its 1 prerequisite: work {last.id} (waiting)."
    )
    end(run, held[0], "permanent")
    for one in (last, further):
        told = verb("explain", one.id)
        assert f"because its prerequisite work {first.id}" in told
        assert f"`outlast retry {first.id}`" in told
        assert "is dead: Boom: it broke." in told
    assert len(children) == 10


def test_a_flow_is_never_too_old(run: Run, database: Database) -> None:
    """R099: a day old, with children whose timeouts are seconds: whoever works on is left alone by
    every net, and whoever is silent is taken back; there is no clock for the whole."""
    *children, last = lay(run, group(*calls(3, timeout=5.0)).then(call(9, timeout=5.0)))
    day = "- 86400" if database.is_sqlite else "- interval '1 day'"
    set_all(database, f"created_at = created_at {day}, run_at = run_at {day}")
    first, second, silent = take(run, 3)
    end(run, first)
    nets = (reclaim_overdue(0.0, 0.5), duties.expire(), reclaim())
    assert [run(lambda net=net: net) for net in nets][1] == []
    assert state(run, second, silent, last) == ["running", "running", "waiting"]
    end_leases(database, f"id = '{silent.id}'")
    assert run(reclaim).healed == 1
    assert state(run, second, silent, last) == ["running", "ready", "waiting"]
    end(run, second)
    assert end_all(run) == 2
    assert run(flow, last.flow).state == "succeeded"
    assert len(children) == 3
