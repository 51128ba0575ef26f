"""A call becomes a row: alone, with a key, in bulk, in the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...model.flow import chain
from ..stage import Stage
from .path import path

MANY = 25


@path("enqueue")
def enqueue(stage: Stage) -> Iterator[None]:
    stage.together(1)
    yield
    stage.promise(stage.work.mark.using(queue=stage.queue).enqueue().id)


@path("enqueue-async")
def enqueue_async(stage: Stage) -> Iterator[None]:
    stage.together(1)
    yield
    job = asyncio.run(stage.work.mark.using(queue=stage.queue).aenqueue())
    stage.promise(job.id)


@path("enqueue-key")
def with_key(stage: Stage) -> Iterator[None]:
    """Sent again after a crash, it is still one job."""
    stage.together(1)
    yield
    _keyed(stage)


@with_key.again
def send_again(stage: Stage) -> Iterator[str]:
    if _keyed(stage) != _keyed(stage):
        yield "one key has two jobs"


def _keyed(stage: Stage) -> str:
    task = stage.work.mark.using(queue=stage.queue, key="only", priority=1)
    job = task.enqueue()
    stage.promise(job.id)
    return job.id


@path("enqueue-delayed")
def delayed(stage: Stage) -> Iterator[None]:
    stage.together(1)
    yield
    stage.promise(stage.work.thread.using(queue=stage.queue, delay=0.05).enqueue().id)


@path("bulk")
def bulk(stage: Stage) -> Iterator[None]:
    stage.together(MANY)
    yield
    task = stage.work.mark.using(queue=stage.queue)
    for job in stage.ol.enqueue(*[task.job() for _ in range(MANY)]):
        stage.promise(job.id)


@path("transaction", callers=True)
def in_callers_transaction(stage: Stage) -> Iterator[None]:
    """The caller's row and the job commit together."""
    stage.beside()
    stage.ol.store.ready()
    with stage.place.connect() as connection:
        yield
        stage.place.do_business(connection, stage.queue)
        job = stage.work.mark.using(queue=stage.queue, conn=connection).enqueue()
        connection.commit()
        stage.promise(job.id)


@path("transaction-bulk", callers=True)
def many_in_callers_transaction(stage: Stage) -> Iterator[None]:
    stage.together(5)
    stage.ol.store.ready()
    with stage.place.connect() as connection:
        yield
        task = stage.work.mark.using(queue=stage.queue)
        jobs = stage.ol.enqueue(*[task.job() for _ in range(5)], conn=connection)
        connection.commit()
        for job in jobs:
            stage.promise(job.id)


@path("rollback", callers=True)
def rolled_back(stage: Stage) -> Iterator[None]:
    """Of one job, which is one statement, and of several that belong together: nothing is left."""
    stage.beside()
    stage.ol.store.ready()
    with stage.place.connect() as connection:
        yield
        stage.place.do_business(connection, stage.queue)
        job = stage.work.mark.using(queue=stage.queue, conn=connection).enqueue()
        several = stage.ol.enqueue(chain(stage.job(), stage.job()), conn=connection)
        for refused in (job, *several):
            stage.refuse(refused.id)
        connection.rollback()
