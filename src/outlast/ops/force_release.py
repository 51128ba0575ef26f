"""A running job is taken from its owner because somebody says so; a worker is told to take no more.

For a handler that hangs in a worker which lives and renews: nothing else takes its job back before
its timeout. The fence grows with the next claim, so whatever the old owner still does counts for
nothing; it is told at its next renewal, and stops the handler.
"""

from __future__ import annotations

from ..model.errors import InvalidOption, TooLate, WorkerNotFound
from ..model.job import Claim, Job
from ..model.outcome import Transition, crashed, release
from ..model.worker_names import is_remote
from .access import ALL_JOBS, Access
from .finish import finish
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .report import job as one_job


def force_release(id: str, by: str, reach: Access = ALL_JOBS) -> Op[Job]:
    """Put a running job back, unspent; or end it, if it was asked to stop. One that is queued needs
    nothing."""
    yield BEGIN
    rows: Rows = yield Statement("hold_running", {"id": id, **reach.params})
    for *claim, cancelling in rows:
        held = Claim(*claim)
        yield from finish([_release_or_end(held, bool(cancelling), by)])
        yield from record_action(
            "reclaim", [id], {"by": by, "worker": held.worker, "attempt": held.attempt}
        )
    job = yield from one_job(id, reach)
    if job.final and not rows:
        raise TooLate(job=id, state=job.state)
    return job


def _release_or_end(claim: Claim, cancelling: bool, by: str) -> Transition:
    if not cancelling:
        return release(claim)
    error = {"type": "Cancelled", "message": f"taken from its worker by {by}", "traceback": ""}
    return crashed(claim, cancelling=True, error=error)


def held_by(worker: str) -> Op[list[str]]:
    """The jobs that a worker runs."""
    rows: Rows = yield Statement("owned", {"worker": worker})
    return [row[0] for row in rows]


def set_draining(worker: str, draining: bool, by: str) -> Op[None]:
    """A worker claims no more, or does so again; what it runs goes on. Told twice is told once."""
    if is_remote(worker):
        raise InvalidOption(
            option="worker", reason="is a remote one: stop it where it runs, and it drains"
        )
    yield BEGIN
    changed: Rows = yield Statement("set_draining", {"worker": worker, "draining": draining})
    if changed:
        yield from record_action(
            "drain" if draining else "undrain", [None], {"by": by, "worker": worker}
        )
        return
    known: Rows = yield Statement("draining", {"worker": worker})
    if not known:
        raise WorkerNotFound(worker=worker)
