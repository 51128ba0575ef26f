"""Verbs for workers: list them, drain one, list the duties of the fleet."""

from __future__ import annotations

from ..ops import report
from ..ops.enqueue import CANCEL_SIGNAL
from ..ops.report import Duty, WorkerInfo
from ..ops.workers import set_draining
from .faces import Face
from .verb_arguments import actor, check_text


async def workers(on: Face) -> list[WorkerInfo]:
    """The worker processes, with their last heartbeat."""
    return await on.run(report.workers)


async def duties(on: Face) -> list[Duty]:
    """Recurring maintenance, and its last results."""
    return await on.run(report.duties)


async def drain(on: Face, worker: str, undo: bool = False) -> None:
    """Drain a worker: it claims no more jobs, running ones continue, and the process stays until it
    is stopped. With `undo` it claims again."""
    await on.run(set_draining, check_text("worker", worker), not undo, actor())
    await on.notify([CANCEL_SIGNAL])
