"""Enqueueing: alone, with a key, in bulk, in the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...model.flow import chain
from ..scenario_context import ScenarioContext
from .scenario import scenario

BULK_SIZE = 25  # inserted by COPY
FEW_JOBS = 10  # inserted by one statement


@scenario("enqueue")
def enqueue(ctx: ScenarioContext) -> Iterator[None]:
    ctx.record_atomic(1)
    yield
    ctx.record_promise(ctx.work.mark.using(queue=ctx.queue).enqueue().id)


@scenario("enqueue-async")
def enqueue_async(ctx: ScenarioContext) -> Iterator[None]:
    ctx.record_atomic(1)
    yield
    job = asyncio.run(ctx.work.mark.using(queue=ctx.queue).aenqueue())
    ctx.record_promise(job.id)


@scenario("enqueue-key")
def with_key(ctx: ScenarioContext) -> Iterator[None]:
    """Repeated after a crash, it is still one job."""
    ctx.record_atomic(1)
    yield
    _keyed(ctx)


@with_key.on_retry
def send_again(ctx: ScenarioContext) -> Iterator[str]:
    if _keyed(ctx) != _keyed(ctx):
        yield "one key has two jobs"


def _keyed(ctx: ScenarioContext) -> str:
    task = ctx.work.mark.using(queue=ctx.queue, key="only", priority=1)
    job = task.enqueue()
    ctx.record_promise(job.id)
    return job.id


@scenario("enqueue-delayed")
def delayed(ctx: ScenarioContext) -> Iterator[None]:
    ctx.record_atomic(1)
    yield
    ctx.record_promise(ctx.work.thread.using(queue=ctx.queue, delay=0.05).enqueue().id)


@scenario("bulk")
def bulk(ctx: ScenarioContext) -> Iterator[None]:
    ctx.record_atomic(BULK_SIZE)
    yield
    task = ctx.work.mark.using(queue=ctx.queue)
    for job in ctx.ol.enqueue(*[task.job() for _ in range(BULK_SIZE)]):
        ctx.record_promise(job.id)


@scenario("bulk-few")
def bulk_few(ctx: ScenarioContext) -> Iterator[None]:
    ctx.record_atomic(FEW_JOBS)
    yield
    task = ctx.work.mark.using(queue=ctx.queue)
    for job in ctx.ol.enqueue(*[task.job() for _ in range(FEW_JOBS)]):
        ctx.record_promise(job.id)


@scenario("transaction", uses_caller_transaction=True)
def in_callers_transaction(ctx: ScenarioContext) -> Iterator[None]:
    """The caller's row and the job commit together."""
    ctx.record_beside_row()
    ctx.ol.store.ready()
    with ctx.workspace.connect() as connection:
        yield
        ctx.workspace.insert_business_row(connection, ctx.queue)
        job = ctx.work.mark.using(queue=ctx.queue, conn=connection).enqueue()
        connection.commit()
        ctx.record_promise(job.id)


@scenario("transaction-bulk", uses_caller_transaction=True)
def many_in_callers_transaction(ctx: ScenarioContext) -> Iterator[None]:
    ctx.record_atomic(5)
    ctx.ol.store.ready()
    with ctx.workspace.connect() as connection:
        yield
        task = ctx.work.mark.using(queue=ctx.queue)
        jobs = ctx.ol.enqueue(*[task.job() for _ in range(5)], conn=connection)
        connection.commit()
        for job in jobs:
            ctx.record_promise(job.id)


@scenario("rollback", uses_caller_transaction=True)
def rolled_back(ctx: ScenarioContext) -> Iterator[None]:
    """A rollback of one job (one statement) and of several that belong together leaves nothing."""
    ctx.record_beside_row()
    ctx.ol.store.ready()
    with ctx.workspace.connect() as connection:
        yield
        ctx.workspace.insert_business_row(connection, ctx.queue)
        job = ctx.work.mark.using(queue=ctx.queue, conn=connection).enqueue()
        several = ctx.ol.enqueue(chain(ctx.call(), ctx.call()), conn=connection)
        for refused in (job, *several):
            ctx.record_rollback(refused.id)
        connection.rollback()
