"""Lost messages: a job without a notification, and a write without a response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...model.flow_builder import build_jobs
from ...model.lifecycle import Outcome
from ...ops.enqueue import enqueue
from ..scenario_context import ScenarioContext
from .scenario import scenario
from .whole_workers import make_worker, wait_for_successes

IDLE_AFTER_S = 0.3  # seconds in which a worker becomes idle


@scenario("unannounced", only_store="postgres", max_points=4)
def unannounced(ctx: ScenarioContext) -> Iterator[None]:
    """An idle worker finds a job whose enqueuer died before it could notify."""
    ctx.record_promise(ctx.work.mark.using(queue=ctx.queue).enqueue().id)
    yield
    asyncio.run(_wait_until_run(ctx))


async def _wait_until_run(ctx: ScenarioContext) -> None:
    working = make_worker(ctx)
    try:
        async with working:
            await wait_for_successes(working, 1)
            await asyncio.sleep(IDLE_AFTER_S)
            call = ctx.work.mark.using(queue=ctx.queue).job()
            (job,) = await ctx.ol.store.arun(enqueue, build_jobs([call]))
            ctx.record_promise(job.id)
            if not await wait_for_successes(working, 2):
                ctx.report("I2", "untriggered", "a job that was not announced was not found")
    finally:
        await ctx.ol.store.aclose()


@scenario("enqueue-unheard", only_store="postgres")
def enqueue_unheard(ctx: ScenarioContext) -> Iterator[None]:
    """A repeated enqueue whose response was lost adds no second job."""
    ctx.record_atomic(1)
    yield
    with lost_answer("INSERT INTO"):
        job = ctx.work.mark.using(queue=ctx.queue).enqueue()
    ctx.record_promise(job.id)


@scenario("finish-unheard", only_store="postgres")
def finish_unheard(ctx: ScenarioContext) -> Iterator[None]:
    """A repeated finish whose response was lost does not report a lost claim."""
    (claim,) = ctx.enqueue_and_claim()
    yield
    with lost_answer("COMMIT"):
        ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim))])


@contextmanager
def lost_answer(statement: str) -> Iterator[None]:
    """The first statement of this kind is executed, and its connection breaks."""
    from psycopg import Connection, OperationalError

    from ...store.postgres.connection import DeadlineConnection

    lost: list[str] = []

    def wrap(execute_sync: Any) -> Any:
        def execute(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            answer = execute_sync(self, query, *args, **kwargs)
            if statement in str(query) and not lost:
                lost.append(statement)
                self.close()
                raise OperationalError("the connection broke before the response arrived")
            return answer

        return execute

    execute_sync = DeadlineConnection.execute_kept
    DeadlineConnection.execute = wrap(Connection.execute)  # type: ignore[method-assign]
    DeadlineConnection.execute_kept = wrap(execute_sync)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del DeadlineConnection.execute
        DeadlineConnection.execute_kept = execute_sync  # type: ignore[method-assign]
