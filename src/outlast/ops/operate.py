"""What people do to jobs: cancel, redrive, pause, resume. Every action is recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..model.errors import JobNotFound, TooLate
from ..model.job import Job, read_job
from ..model.lifecycle import State
from .statement import BEGIN, Op, Rows, Statement


def cancel(id: str, by: str, reason: str) -> Op[Job]:
    """Cancel a queued job, or ask a running one to stop. Cancelling twice is one cancel."""
    yield BEGIN
    error = {"type": "Cancelled", "message": reason or f"cancelled by {by}", "traceback": ""}
    changed: Rows = yield Statement("cancel", {"id": id, "error": json.dumps(error)})
    rows: Rows = yield Statement("job", {"id": id})
    if not rows:
        raise JobNotFound(job=id)
    job = read_job(rows[0])
    if changed:
        yield from note("cancel", [id], {"by": by, "reason": reason, "state": str(job.state)})
    elif not (job.state is State.CANCELLED or (job.state is State.RUNNING and job.cancelling)):
        raise TooLate(job=id, state=job.state)
    return job


def redrive(ids: Sequence[str], by: str, action: str = "") -> Op[list[str]]:
    """Give dead or cancelled jobs a new life; return the ids of those that got one. Under the name
    of an action also of those that got it by an earlier try, whose answer was lost."""
    given = {"ids": json.dumps(sorted(ids))}
    yield BEGIN
    rows: Rows = yield Statement("redrive", given)
    if rows:
        told = {"by": by, "action": action} if action else {"by": by}
        yield from note("redrive", [id for (id,) in rows], told)
    if action and len(rows) < len(ids):
        rows = yield Statement("redriven", given | {"action": action})
    return [id for (id,) in rows]


def redrive_one(id: str, by: str) -> Op[Job]:
    """Redrive a job, or say why not. A job that is queued or runs already needs nothing."""
    revived = yield from redrive([id], by)
    rows: Rows = yield Statement("job", {"id": id})
    if not rows:
        raise JobNotFound(job=id)
    job = read_job(rows[0])
    if not revived and job.state is State.SUCCEEDED:
        raise TooLate(job=id, state=job.state)
    return job


def set_paused(queue: str, paused: bool, by: str) -> Op[None]:
    """Stop or start the claiming of a queue; running jobs go on. Pausing twice is one pause."""
    yield BEGIN
    changed: Rows = yield Statement("set_paused", {"queue": queue, "paused": paused})
    if changed:
        yield from note("pause" if paused else "resume", [None], {"by": by, "queue": queue})


def note(kind: str, jobs: Sequence[str | None], data: dict[str, Any]) -> Op[None]:
    text = json.dumps(data)
    yield Statement("note", rows=[{"job": job, "kind": kind, "data": text} for job in jobs])
