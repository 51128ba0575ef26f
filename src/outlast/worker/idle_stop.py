"""Idle stop: end a worker once its queues have no jobs to run (`outlast worker --until-idle`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..model.errors import Unsupported
from ..ops.idle import due_elsewhere
from .job_source import DatabaseSource

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")


def stop_when_idle(worker: Worker) -> None:
    """Stop the worker when none of its queues has a job that is due, or running on any worker: a
    job whose worker dies meanwhile is still run. Jobs that are scheduled for later, paused, or of
    unknown tasks are left."""
    if not isinstance(worker.source, DatabaseSource):
        raise Unsupported(
            reason="a remote worker does not see the queues, so it cannot know that they are idle:"
            " use --until-idle on a worker with the database"
        )
    worker.source.on_idle = IdleStop(worker, worker.source)


class IdleStop:
    """Called when this worker itself has nothing to do."""

    def __init__(self, worker: Worker, source: DatabaseSource) -> None:
        self._worker = worker
        self._source = source

    async def __call__(self) -> bool:
        if self._source.poller.idle_signs.refill is not None:
            return False  # a rate limit allows the next job soon
        app, queues = self._worker.app, self._worker.queues
        if await app.store.arun(due_elsewhere, app.registry.names(), queues):
            return False
        self._worker.stop()
        return True
