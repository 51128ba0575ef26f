"""Conditions that could stop a worker for good: many queues, unstorable outcomes, full counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from ...model.claim import FENCE_LIMIT
from ...model.lifecycle import Outcome
from ...ops.operation import Begin, BulkInsert, Op, Pipeline, Statement, Step
from ...store import Store
from ...worker.job_source import DatabaseSource
from ...worker.worker import Worker
from ..scenario_context import ScenarioContext
from ..workspace import Workspace
from .database_faults import own_workspace
from .scenario import scenario
from .whole_workers import make_worker

MAX_WORK_S = 10.0  # limit for work that takes a tenth of a second
QUEUE_COUNT = 12


@scenario("many-queues", max_points=12)
def many_queues(ctx: ScenarioContext) -> Iterator[None]:
    """Queues with one job each, which are claimed from together; one also has a running job."""
    (held,) = ctx.enqueue_and_claim()
    names = [ctx.queue, *(f"{ctx.queue}-{n}" for n in range(1, QUEUE_COUNT))]
    for name in names:
        ctx.record_promise(ctx.work.mark.using(queue=name).enqueue().id)
    yield
    working = make_worker(ctx, names)
    if not asyncio.run(
        _worker_reaches(ctx, working, lambda: working.counts["succeeded"] >= QUEUE_COUNT)
    ):
        ctx.report("I2", "unstarted", "a worker with many queues does not reach some of them")
    stands = ctx.ol.job(held.id)
    if stands.fence != held.fence and not stands.crashes:  # a reclaim charges a crash
        ctx.report("I3", "zombie", "a running job was claimed")
    ctx.finish([(held, ctx.attempt_end(Outcome.SUCCEEDED, held))])


@scenario("resting-queue", max_points=8)
def resting_queue(ctx: ScenarioContext) -> Iterator[None]:
    """A queue of only unknown tasks gets a known one, without a notification."""
    workspace, work = own_workspace(ctx)  # a process killed here leaves an unknown task
    unknown_job = work.mark.enqueue()
    _update_row(workspace, unknown_job.id, "task = 'strange'")
    yield
    working = work.ol.worker(concurrency=8, poll_max=0.05)
    assert isinstance(working.source, DatabaseSource)
    rests = working.source.poller._rotation._backoffs

    def ran() -> bool:
        if any(rest.empty_claims > 3 for rest in tuple(rests.values())):
            _update_row(workspace, unknown_job.id, "task = 'mark'")
        return working.counts["succeeded"] >= 1

    if not asyncio.run(_worker_reaches(ctx, working, ran)):
        ctx.report("I2", "unstarted", "a queue that backed off is not claimed from again")
    work.ol.close()


class Unsendable(ValueError):
    """The error of a driver for a value that it cannot send."""


@scenario("unstorable-outcome", max_points=8)
def unstorable_outcome(ctx: ScenarioContext) -> Iterator[None]:
    """One outcome among others cannot be stored: its job is dead, the others finish."""
    ctx.enqueue(3)
    (bad,) = ctx.enqueue(1, "dead", "succeeded", max_attempts=1)
    yield
    _refuse_result(ctx.ol.store, bad.id)
    working = make_worker(ctx)

    def ended() -> bool:
        return working.counts["succeeded"] >= 3 and working.counts["dead"] >= 1

    if not asyncio.run(_worker_reaches(ctx, working, ended)):
        ctx.report("I2", "unfinished", "an outcome that cannot be stored delays others")


unstorable_outcome.expected_errors = (Unsendable,)


@scenario("counter-at-limit", max_points=8)
def counter_at_limit(ctx: ScenarioContext) -> Iterator[None]:
    """A job whose fence cannot grow is at the head of its queue: it is dead, and others run."""
    workspace, work = own_workspace(ctx)  # the checker counts fences, and would count for long
    first, *_ = [work.mark.using(priority=9 - n).enqueue() for n in range(4)]
    _update_row(workspace, first.id, f"fence = {FENCE_LIMIT}")
    yield
    working = work.ol.worker(concurrency=8, poll_max=0.05)

    def ended() -> bool:
        return _states(workspace) == {"succeeded": 3, "dead": 1}

    if not asyncio.run(_worker_reaches(ctx, working, ended)):
        ctx.report("I2", "unstarted", "a row at an integer limit stops its queue, or was run")
    work.ol.close()


async def _worker_reaches(
    ctx: ScenarioContext, working: Worker, enough: Callable[[], bool]
) -> bool:
    """Whether a worker reaches a condition in time. Not expected where its network may be cut."""
    running = asyncio.create_task(working.arun())
    until = time.monotonic() + (MAX_WORK_S if ctx.max_work_s is None else ctx.max_work_s)
    try:
        while not (done := enough()) and not running.done() and time.monotonic() < until:
            await asyncio.wait([running], timeout=0.02)
        working.stop()
        await running
    finally:
        await working.app.store.aclose()
    return done or ctx.max_work_s is not None


def _states(workspace: Workspace) -> dict[str, int]:
    """The number of jobs in each state; a worker's own counts miss writes without a response."""
    with workspace.connect_past_proxy() as connection:
        counted = f"SELECT state, count(*) FROM {_job_table(workspace)} GROUP BY state"  # noqa: S608 - ours
        return dict(connection.execute(counted).fetchall())


def _job_table(workspace: Workspace) -> str:
    return f"{workspace.schema}_job" if workspace.is_sqlite else f'"{workspace.schema}".job'


def _update_row(workspace: Workspace, id: str, change: str) -> None:
    """Bypassing Outlast."""
    table = _job_table(workspace)
    with workspace.connect_past_proxy() as connection:
        connection.execute(f"UPDATE {table} SET {change} WHERE id = '{id}'")  # noqa: S608 - ours
        connection.commit()


def _refuse_result(store: Store, job: str) -> None:
    """Let every report of a result of this job fail, as with a driver that cannot send it."""
    kind: Any = type(store)

    def checked(op: Op[object]) -> Op[object]:
        with closing(op):
            answer: object = None
            try:
                while True:
                    step = op.send(answer)
                    _refuse(step, job)
                    answer = yield step
            except StopIteration as stop:
                return stop.value

    class Refusing(kind):  # type: ignore[misc]
        def run_once(self, op: Op[object]) -> object:
            return super().run_once(checked(op))

        async def arun_once(self, op: Op[object]) -> object:
            return await super().arun_once(checked(op))

        def clone(self, *args: object, **settings: object) -> object:
            twin = super().clone(*args, **settings)
            twin.__class__ = Refusing
            return twin

    store.__class__ = Refusing


def _refuse(step: Step, job: str) -> None:
    if isinstance(step, Begin | BulkInsert):
        return
    for statement in step if isinstance(step, Pipeline) else (step,):
        if any(_has_result(row, job) for row in _rows(statement)):
            raise Unsendable("this value cannot be sent")


def _rows(statement: Statement) -> list[dict[str, object]]:
    return [dict(row) for row in statement.rows or ()]


def _has_result(row: dict[str, object], job: str) -> bool:
    return row.get("id") == job and row.get("result") is not None
