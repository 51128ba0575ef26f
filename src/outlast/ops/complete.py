"""A job is finished in the transaction of its handler's own writes: both commit, or neither."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.errors import ClaimLost
from ..model.outcome import Transition
from .finish import enqueue_followups, finish, lookup_finished
from .operation import BEGIN, Op, Statement


def complete(transition: Transition, events: Sequence[dict[str, object]] = ()) -> Op[None]:
    """Finish, or raise and thereby take back what was written beside it. What the handler enqueued
    goes first: a key may have to wait for others, and until then no row of ours is locked."""
    yield from enqueue_followups(transition.jobs)
    finished = yield from finish([transition._replace(jobs=())], events)
    if finished.lost or finished.duplicates:
        raise ClaimLost(job=transition.claim.id)


def completed(transition: Transition) -> Op[bool]:
    """Whether a completion whose answer got lost was accepted. One that is still under way holds
    the job's row, and is waited for."""
    yield BEGIN
    yield Statement("await_job", {"id": transition.claim.id})
    return not (yield from lookup_finished([transition])).lost
