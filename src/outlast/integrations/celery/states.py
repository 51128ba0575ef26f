"""`celery.states`: a job's state in Celery's terms.

waiting, scheduled, ready    PENDING, or RETRY after an attempt
running                      STARTED, or the state set by `self.update_state`
succeeded                    SUCCESS
dead                         FAILURE
cancelled (or expired)       REVOKED
"""

from __future__ import annotations

from ...model.job import Job
from ...model.lifecycle import State

PENDING, RECEIVED, STARTED, RETRY = "PENDING", "RECEIVED", "STARTED", "RETRY"
SUCCESS, FAILURE, REVOKED, REJECTED = "SUCCESS", "FAILURE", "REVOKED", "REJECTED"
IGNORED = "IGNORED"

READY_STATES = frozenset({SUCCESS, FAILURE, REVOKED})
UNREADY_STATES = frozenset({PENDING, RECEIVED, STARTED, REJECTED, RETRY})
EXCEPTION_STATES = frozenset({RETRY, FAILURE, REVOKED})
PROPAGATE_STATES = frozenset({FAILURE, REVOKED})
ALL_STATES = READY_STATES | UNREADY_STATES

_ENDS = {State.SUCCEEDED: SUCCESS, State.DEAD: FAILURE, State.CANCELLED: REVOKED}


def state_of(job: Job) -> str:
    if job.state is State.RUNNING:
        return STARTED
    return _ENDS.get(job.state) or (RETRY if retries_of(job) > 0 else PENDING)


def retries_of(job: Job) -> int:
    """The number of retries that the task requested: its attempts without those that lost their
    worker. While the job is not running, the next attempt counts."""
    begun = job.attempt - job.crashes
    return max(0, begun - 1 if job.state in (State.RUNNING, *_ENDS) else begun)
