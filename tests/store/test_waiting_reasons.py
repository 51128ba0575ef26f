"""Why is it waiting: lanes, limits, rates, order and debounce, each in a sentence that helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast.ops import workers as worker_ops
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.enqueue import enqueue
from outlast.ops.explain import explain
from outlast.ops.lanes import set_lane_paused, slow_down
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.jobs import end, new, put
from tests.store.test_lanes import limit, put_in, turn

Why = Callable[..., str]
WORKER = {
    "id": "w1", "host": "h", "pid": 7, "queues": None, "tasks": '["work"]',
    "concurrency": 9, "version": "1", "lease": 15.0,
}  # fmt: skip


@pytest.fixture
def why(run: Run, store: Store) -> Why:
    """What a job says to an operator, or to a tenant, while a worker could run it."""
    run(worker_ops.register, WORKER)

    def ask(id: str, tenant: str | None = None) -> str:
        reach = ALL_JOBS if tenant is None else Access(tenant)
        return str(run(explain, id, store.confirm_dead, reach))

    return ask


def test_the_slots_of_a_lane_are_taken(run: Run, why: Why) -> None:
    """R120, R199: by whom; a tenant is told of its own jobs only."""
    limit(run, lane_running=5)
    for tenant in ("acme", "other", "other", "other", "other"):
        put(run, lane="a", tenant=tenant)
    held = turn(run)
    (waiting,) = put(run, lane="a", tenant="acme")
    first, mine = [c.id for c in held[:3]], [c.id for c in held if c.tenant == "acme"]
    named = ", ".join(first)
    assert why(waiting.id) == f"5 of 5 slots of lane a are taken by {named} and 2 more."
    said = why(waiting.id, "acme")
    assert said == f"5 of 5 slots of lane a are taken by {mine[0]} and 4 more."
    end(run, next(c for c in held if c.tenant == "acme"))
    put(run, lane="a", tenant="other", priority=9)
    turn(run, 1)
    assert why(waiting.id, "acme") == "5 of 5 slots of lane a are taken."


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"lane_running": 1}, "1 of 1 slot of lane a is taken by {first}."),
        ({"running": 1}, "1 of 1 slot of its queue is taken."),
        ({"ordered": True}, "1 of 1 slot of lane a is taken by {first}."),
        ({"lane_rate": "1/h"}, "Lane a has used up its rate: the next job starts in 60.0 min."),
        ({"rate": "1/h"}, "Its queue has used up its rate: the next job starts in 60.0 min."),
    ],
    ids=str,
)
def test_a_limit_or_a_rate_is_used_up(
    run: Run, why: Why, limits: dict[str, Any], said: str
) -> None:
    """R120, R148, R199, R238: and nothing of it once there is room."""
    limit(run, **limits)
    first, second = put_in(run, "a", 2)
    assert why(second).startswith("It is ready, with 1 job of its queue before it.")
    (claim,) = turn(run, 1)
    assert claim.id == first
    assert why(second) == said.format(first=first)
    if "rate" not in str(limits):
        end(run, claim)
        assert why(second).startswith("It is ready, with no job of its queue before it.")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"lane_running": 0}, "The limit of lane a is 0: no job of it may run."),
        ({"running": 0}, "The limit of its queue is 0: no job of it may run."),
    ],
    ids=str,
)
def test_a_limit_of_nothing(run: Run, why: Why, limits: dict[str, Any], said: str) -> None:
    limit(run, **limits)
    (id,) = put_in(run, "a")
    assert turn(run) == [] and why(id) == said


def test_a_lane_or_its_tenant_is_paused(run: Run, why: Why) -> None:
    """R119, R199: an operator is told how to resume it; a tenant is not."""
    limit(run, lane="tenant")
    (job,) = put(run, tenant="acme")
    run(set_lane_paused, "default", "acme", True, "ann")
    resume = "`outlast resume default --lane acme` lets it run."
    assert why(job.id) == f"Lane acme is paused: {resume}"
    assert why(job.id, "acme") == "Lane acme is paused."
    run(set_lane_paused, "default", "acme", False, "ann")
    run(set_lane_paused, "", "acme", True, "ann")
    resume = "`outlast resume --tenant acme` lets it run."
    assert why(job.id) == f"The tenant acme is paused: {resume}"
    assert why(job.id, "acme") == "The tenant acme is paused."


def test_a_lane_was_told_to_slow_down(run: Run, why: Why) -> None:
    """R057, R199"""
    limit(run, lane="tenant")
    _, second = put_in(run, "a", 2)
    (claim,) = turn(run, 1)
    run(slow_down, claim, 10_800.0)
    assert why(second) == "Lane a is slowed down: it opens in 3.0 h."


def test_the_head_of_an_ordered_lane_comes_first(run: Run, why: Why) -> None:
    """R199, R240: while it waits for its next attempt; others' jobs are not named."""
    limit(run, ordered=True)
    (head,) = put(run, lane="a", tenant="acme")
    (second,) = put(run, lane="a", tenant="other")
    (claim,) = turn(run, 1)
    end(run, claim, "failed")
    began = "which started before, must end first."
    assert why(second.id) == f"Lane a runs in order: job {head.id}, {began}"
    assert why(second.id, "other") == f"Lane a runs in order: another tenant's job, {began}"
    assert why(head.id).startswith("It tries again in")


def test_a_dead_job_blocks_its_ordered_lane(run: Run, why: Why) -> None:
    """R199, R240"""
    limit(run, ordered=True, on_dead="block")
    (head,) = put(run, lane="a", tenant="acme")
    (second,) = put(run, lane="a", tenant="other")
    (claim,) = turn(run, 1)
    end(run, claim, "permanent")
    assert why(second.id) == (
        f"Lane a runs in order, and its dead job {head.id} blocks it: `outlast retry {head.id}`"
        " lets it run, and the others after it."
    )
    hidden = "Lane a runs in order, and another tenant's dead job blocks it."
    assert why(second.id, "other") == hidden


def test_a_debounced_job_can_be_put_off(run: Run, why: Why) -> None:
    """R199, R242: a job that is only scheduled, or only unique, is not said to be."""
    wanted = {"key": "doc-7", "unique_mode": "debounce", "unique_span": 3600.0, "delay": 3600.0}
    (job,) = run(enqueue, [new(**wanted)])
    said = why(job.id)
    assert said.startswith("It is scheduled to run in ")
    assert said.endswith(
        "It is debounced: another call with its key 'doc-7' delays it and replaces its arguments."
    )
    (plain,) = put(run, key="k", delay=3600.0)
    (unique,) = put(run, key="u", unique_mode="active", delay=3600.0)
    assert "debounced" not in why(plain.id) + why(unique.id)


def test_a_unique_job_waits_as_any_other(run: Run, why: Why) -> None:
    """R199, R242: its key keeps other calls away, and not itself."""
    (job,) = put(run, key="inbox-7", unique_mode="waiting")
    assert why(job.id).startswith("It is ready, with no job of its queue before it.")
