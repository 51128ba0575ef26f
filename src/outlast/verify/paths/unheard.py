"""What nobody was told: a job without a wake-up, and a write whose answer got lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...model.layout import new_jobs
from ...model.lifecycle import Outcome
from ...ops.enqueue import enqueue
from ..stage import Stage
from .path import path
from .working import ended, worker

QUIET = 0.3  # seconds in which a worker becomes idle


@path("unannounced", only="postgres", most=4)
def unannounced(stage: Stage) -> Iterator[None]:
    """Whoever enqueued died before it could wake anybody: a worker that is idle finds the job."""
    stage.promise(stage.work.mark.using(queue=stage.queue).enqueue().id)
    yield
    asyncio.run(_found(stage))


async def _found(stage: Stage) -> None:
    working = worker(stage)
    try:
        async with working:
            await ended(working, 1)
            await asyncio.sleep(QUIET)
            call = stage.work.mark.using(queue=stage.queue).job()
            (job,) = await stage.ol.store.arun(enqueue, new_jobs([call]))
            stage.promise(job.id)
            if not await ended(working, 2):
                stage.saw("I2", "untriggered", "a job that was not announced was not found")
    finally:
        await stage.ol.store.aclose()


@path("enqueue-unheard", only="postgres")
def enqueue_unheard(stage: Stage) -> Iterator[None]:
    """The job stands and the answer is lost: sent again, it is still one job."""
    stage.together(1)
    yield
    with deaf("INSERT INTO"):
        job = stage.work.mark.using(queue=stage.queue).enqueue()
    stage.promise(job.id)


@path("finish-unheard", only="postgres")
def finish_unheard(stage: Stage) -> Iterator[None]:
    """The finish counts and the answer is lost: sent again, it is not told that it lost."""
    (claim,) = stage.claimed()
    yield
    with deaf("COMMIT"):
        stage.finish([(claim, stage.ended(Outcome.SUCCEEDED, claim))])


@contextmanager
def deaf(word: str) -> Iterator[None]:
    """The first statement of this kind is carried out, and its connection breaks."""
    from psycopg import Connection, OperationalError

    from ...store.links import Link

    lost: list[str] = []

    def hearing(say: Any) -> Any:
        def said(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            answer = say(self, query, *args, **kwargs)
            if word in str(query) and not lost:
                lost.append(word)
                self.close()
                raise OperationalError("the connection broke before the answer came")
            return answer

        return said

    say = Link.say
    Link.execute = hearing(Connection.execute)  # type: ignore[method-assign]
    Link.say = hearing(say)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del Link.execute
        Link.say = say  # type: ignore[method-assign]
