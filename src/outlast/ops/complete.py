"""Completion: finish a job in the transaction of its handler's own writes. Both commit, or
neither."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.claim import ClaimEvent
from ..model.errors import ClaimLost
from ..model.outcome import Transition
from ..model.stream import STREAM
from .finish import enqueue_followups, finish, lookup_finished
from .operation import BEGIN, Op, Pipeline, Statement
from .streams import stream_statements


def complete(
    transition: Transition,
    events: Sequence[ClaimEvent] = (),
    stream_limit: int = 0,
) -> Op[None]:
    """Finish, or raise and thereby roll back the handler's writes. Jobs that the handler enqueued
    go first: a key may have to wait for other transactions, and until then no job row is locked."""
    yield from enqueue_followups(transition.jobs)
    if streamed := [event for event in events if event["kind"] == STREAM]:
        yield Pipeline(stream_statements(streamed, stream_limit))
    stored = [event for event in events if event["kind"] != STREAM]
    finished = yield from finish([transition._replace(jobs=())], stored)
    if finished.lost or finished.duplicates:
        raise ClaimLost(job=transition.claim.id)


def completed(transition: Transition) -> Op[bool]:
    """Whether a completion whose response was lost was accepted. An uncommitted one holds the lock
    on the job's row, so this call waits for it."""
    yield BEGIN
    yield Statement("await_job", {"id": transition.claim.id})
    return not (yield from lookup_finished([transition])).lost
