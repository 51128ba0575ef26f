"""What could stop a worker for good: very many queues, unstorable outcomes, counters at limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from ...model.job import FENCE_LIMIT
from ...ops.statement import Begin, Op, Statement, Step, Together
from ...store import Store
from ...worker.worker import Worker
from ..place import Place
from ..stage import Stage
from .outside import own
from .path import path
from .working import worker

LONGEST_S = 10.0  # for work that takes a tenth of a second
QUEUES = 12


@path("many-queues", most=12)
def many_queues(stage: Stage) -> Iterator[None]:
    """Queues with one job each, which are claimed from together."""
    names = [f"{stage.queue}-{n}" for n in range(QUEUES)]
    for name in names:
        stage.promise(stage.work.mark.using(queue=name).enqueue().id)
    yield
    working = worker(stage, names)
    if not asyncio.run(_works(stage, working, lambda: working.counts["succeeded"] >= QUEUES)):
        stage.saw("I2", "unstarted", "a worker with many queues does not come to some of them")


@path("resting-queue", most=8)
def resting_queue(stage: Stage) -> Iterator[None]:
    """A queue that held only unknown tasks gets one that the worker knows, unannounced."""
    place, work = own(stage)  # whoever is killed here leaves a task that nobody knows
    strange = work.mark.enqueue()
    _set(place, strange.id, "task = 'strange'")
    yield
    working = work.ol.worker(concurrency=8, poll_max=0.05)
    rests = working.lookout._turns._rests

    def ran() -> bool:
        if any(rest.asked_in_vain > 3 for rest in tuple(rests.values())):
            _set(place, strange.id, "task = 'mark'")
        return working.counts["succeeded"] >= 1

    if not asyncio.run(_works(stage, working, ran)):
        stage.saw("I2", "unstarted", "a queue that rests is not asked again")
    work.ol.close()


class Unsendable(ValueError):
    """What a driver says to a value that it cannot send."""


@path("unstorable-outcome", most=8)
def unstorable_outcome(stage: Stage) -> Iterator[None]:
    """One outcome that cannot be stored, among good ones: these finish, and it is dead."""
    stage.enqueued(3)
    (bad,) = stage.enqueued(1, "dead", "succeeded", max_attempts=1)
    yield
    _refuse_result(stage.ol.store, bad.id)
    working = worker(stage)

    def ended() -> bool:
        return working.counts["succeeded"] >= 3 and working.counts["dead"] >= 1

    if not asyncio.run(_works(stage, working, ended)):
        stage.saw("I2", "unfinished", "an outcome that cannot be stored holds up others")


unstorable_outcome.raises = (Unsendable,)


@path("counter-at-limit", most=8)
def counter_at_limit(stage: Stage) -> Iterator[None]:
    """A row whose fence cannot grow, at the head of its queue: it is dead, and others run."""
    place, work = own(stage)  # the judge counts fences, and would count for long
    first, *_ = [work.mark.using(priority=9 - n).enqueue() for n in range(4)]
    _set(place, first.id, f"fence = {FENCE_LIMIT}")
    yield
    working = work.ol.worker(concurrency=8, poll_max=0.05)

    def ended() -> bool:
        return working.counts["succeeded"] >= 3 and working.counts["dead"] >= 1

    if not asyncio.run(_works(stage, working, ended)):
        stage.saw("I2", "unstarted", "a row at an integer limit stops its queue, or was run")
    work.ol.close()


async def _works(stage: Stage, working: Worker, enough: Callable[[], bool]) -> bool:
    """Whether a worker gets so far in time. Where its network may be cut nobody expects that."""
    running = asyncio.create_task(working.arun())
    until = time.monotonic() + (LONGEST_S if stage.patience is None else stage.patience)
    try:
        while not (done := enough()) and not running.done() and time.monotonic() < until:
            await asyncio.wait([running], timeout=0.01)
        working.stop()
        await running
    finally:
        await working.app.store.aclose()
    return done or stage.patience is not None


def _set(place: Place, id: str, change: str) -> None:
    """Past the product."""
    table = f"{place.schema}_job" if place.is_sqlite else f'"{place.schema}".job'
    with place.connect_past_proxy() as connection:
        connection.execute(f"UPDATE {table} SET {change} WHERE id = '{id}'")  # noqa: S608 - ours
        connection.commit()


def _refuse_result(store: Store, job: str) -> None:
    """Whatever hands in a result of this job fails, as with a driver that cannot send it."""
    kind: Any = type(store)

    def checked(op: Op[Any]) -> Op[Any]:
        with closing(op):
            answer: Any = None
            try:
                while True:
                    step = op.send(answer)
                    _refuse(step, job)
                    answer = yield step
            except StopIteration as stop:
                return stop.value

    class Refusing(kind):  # type: ignore[misc]
        def once(self, op: Op[Any]) -> Any:
            return super().once(checked(op))

        async def aonce(self, op: Op[Any]) -> Any:
            return await super().aonce(checked(op))

        def twin(self, *said: Any, **settings: Any) -> Any:
            twin = super().twin(*said, **settings)
            twin.__class__ = Refusing
            return twin

    store.__class__ = Refusing


def _refuse(step: Step, job: str) -> None:
    if isinstance(step, Begin):
        return
    for statement in step if isinstance(step, Together) else (step,):
        if any(_has_result(row, job) for row in _rows(statement)):
            raise Unsendable("this value cannot be sent")


def _rows(statement: Statement) -> list[dict[str, Any]]:
    return [dict(row) for row in statement.rows or ()]


def _has_result(row: dict[str, Any], job: str) -> bool:
    return row.get("id") == job and row.get("result") is not None
