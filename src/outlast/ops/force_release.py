"""Force release: an operator takes a running job from its worker.

For a handler that hangs in a worker that is alive and renews: nothing else reclaims its job before
its timeout. The fence grows with the next claim, so later writes of the old owner are refused; the
old owner is notified at its next renewal and stops the handler.
"""

from __future__ import annotations

from ..model.claim import Claim
from ..model.errors import TooLate
from ..model.job import Job
from ..model.outcome import Transition, crashed, release
from .access import ALL_JOBS, Access
from .finish import finish
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .report import job as one_job


def force_release(id: str, by: str, reach: Access = ALL_JOBS) -> Op[Job]:
    """Release a running job, unspent; or end it, if its cancellation was requested. No effect on a
    queued job."""
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
