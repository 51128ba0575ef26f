"""The end of many who waited in vain: however deep or dense, in one short transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outlast.model.flow import Flow, chain
from outlast.model.job import Job
from outlast.ops import job_actions
from outlast.ops.finish import finish
from outlast.ops.operation import Begin
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.flowing import call, calls, end_all, lay, state, stuck
from tests.store.jobs import ending, states, take
from tests.support import Database

DEEP = 5_000
LAYERS, WIDTH = 20, 50  # each layer after all of the one before: 50 ** 19 ways through it

MOST_STEPS = 12  # round trips, however many end


def deep(run: Run) -> list[Job]:
    return lay(run, chain(*calls(DEEP)))


def dense(run: Run) -> list[Job]:
    flow = Flow()
    layer = [flow.add(call(0))]
    for n in range(LAYERS):
        layer = [flow.add(call(n), after=layer) for _ in range(WIDTH)]
    return lay(run, flow)


def counted(run: Run, operation: Callable[..., Any], *args: Any) -> int:
    """Carry an operation out; how many round trips it took."""
    steps = 0

    def op() -> Iterator[Any]:
        nonlocal steps
        going, answer = operation(*args), None
        while True:
            try:
                step = going.send(answer)
            except StopIteration:
                return
            steps += not isinstance(step, Begin)
            answer = yield step

    run(op)
    return steps


@pytest.mark.slow_on("postgres")
@pytest.mark.kinds("sqlite", "postgres")
@pytest.mark.parametrize("graph", [deep, dense])
def test_all_who_waited_in_vain_end_at_once(
    store: Store, database: Database, graph: Callable[[Run], list[Job]]
) -> None:
    """R097, R107: one failure ends thousands, in a few round trips; whoever waits for any end
    starts. A redrive brings all of them back, and they run."""
    jobs = graph(store.run)
    (after,) = lay(store.run, call(9, after=jobs[-1], when="finished", queue="after"))
    (held,) = take(store.run)
    steps = counted(store.run, finish, [ending(held, "permanent")])
    assert Counter(states(database)) == {"dead": len(jobs), "ready": 1}
    assert steps <= MOST_STEPS
    assert state(store.run, after) == ["ready"]

    steps = counted(store.run, job_actions.redrive, [jobs[0].id], "ann")
    assert Counter(states(database)) == {"waiting": len(jobs) - 1, "ready": 2}
    assert steps <= MOST_STEPS
    assert stuck(database) == 0
    if graph is dense:
        assert end_all(store.run) == len(jobs)
        assert set(states(database)) <= {"succeeded", "ready"}
