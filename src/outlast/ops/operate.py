"""What people do to jobs: cancel, redrive, pause, resume. Every action is recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..model.errors import TooLate
from ..model.job import Job
from ..model.lifecycle import State
from ..model.outcome import reason
from .consequences import consequences
from .flows import BROKEN, recount, recount_followers
from .reach import EVERYTHING, Reach
from .report import job as one_job
from .statement import BEGIN, Op, Rows, Statement


def cancel(id: str, by: str, reason: str, reach: Reach = EVERYTHING) -> Op[Job]:
    """Cancel a queued job, or ask a running one to stop. Cancelling twice is one cancel."""
    yield BEGIN
    error = {"type": "Cancelled", "message": reason or f"cancelled by {by}", "traceback": ""}
    given = {"id": id, "error": json.dumps(error), **reach.params}
    changed: Rows = yield Statement("cancel", given)
    if changed == [(State.CANCELLED, True)]:
        yield from consequences([(id, State.CANCELLED)])
    job = yield from one_job(id, reach)
    if changed:
        yield from note("cancel", [id], {"by": by, "reason": reason, "state": str(job.state)})
    elif not (job.state is State.CANCELLED or (job.state is State.RUNNING and job.cancelling)):
        raise TooLate(job=id, state=job.state)
    return job


def redrive(
    ids: Sequence[str],
    by: str,
    action: str = "",
    opens: bool = True,
    reach: Reach = EVERYTHING,
) -> Op[list[str]]:
    """Give dead or cancelled jobs a new life, and those that are dead because of them; return the
    ids of those that got one. One that waits for a job which stays dead stays so too. Under the
    name of an action also those are told that got it by an earlier try, whose answer was lost.
    Flows that are cancelled are opened with it; or, if they have been, they are left alone."""
    yield BEGIN
    doomed: Rows = yield Statement("doomed_by", {"ids": json.dumps(sorted(ids))})
    wanted = sorted({*ids, *(id for (id,) in doomed)})
    if reach != EVERYTHING:  # those may be somebody else's, and so may the flows that they are in
        own: Rows = yield Statement("jobs_in_reach", {"ids": json.dumps(wanted), **reach.params})
        wanted = sorted(id for (id,) in own)
    # Flows before jobs, as who joins a flow locks them; and those waited for before who waits.
    if opens:
        yield Statement("reopen_flows_of", {"ids": json.dumps(wanted)})
    else:
        open_ones: Rows = yield Statement("in_open_flows", {"ids": json.dumps(wanted)})
        wanted = sorted(id for (id,) in open_ones)
    yield Statement("hold_prerequisites_of", {"ids": json.dumps(wanted)})
    rows: Rows = yield Statement("redrive", {"ids": json.dumps(wanted), **reach.params})
    again = yield from _in_vain([id for id, state, _ in rows if state == State.WAITING])
    if tied := [id for id, _, tied in rows if tied]:
        yield from recount_followers(tied)  # some were counted as ended, and have not now
    revived = [id for id, _, _ in rows if id not in again]
    if opens and tied:
        yield Statement("forgive", {"ids": json.dumps(revived)})
    if revived:
        told = {"by": by, "action": action} if action else {"by": by}
        yield from note("redrive", revived, told)
    if action and len(revived) < len(wanted):
        given = {"ids": json.dumps(wanted), "action": action}
        before: Rows = yield Statement("redriven", given)
        revived = [id for (id,) in before]
    return revived


def _in_vain(ids: Sequence[str]) -> Op[set[str]]:
    """Count what revived jobs wait for: those that wait for a job which stays dead, or for one of
    these, end again."""
    counted = (yield from recount(ids)) if ids else []
    again = {id for id, state, _, _ in counted if state in BROKEN}
    if again:
        doomed: Rows = yield Statement("doom", {"ids": json.dumps(sorted(again))})
        again |= {id for id, _, _ in doomed}
    return again


def redrive_one(id: str, by: str, reach: Reach = EVERYTHING) -> Op[Job]:
    """Redrive a job, or say why not. A job that is queued or runs already needs nothing."""
    if reach != EVERYTHING:
        yield from one_job(id, reach)  # a job never changes hands: what is seen now holds
    revived = yield from redrive([id], by, reach=reach)
    job = yield from one_job(id, reach)
    if not revived and job.state is State.SUCCEEDED:
        raise TooLate(job=id, state=job.state)
    if job.state in BROKEN:
        raise TooLate(
            f"job {id} cannot run: {reason(job.error)}; retry that one, and this one comes with it",
            job=id,
            state=job.state,
        )
    return job


def set_paused(queue: str, paused: bool, by: str) -> Op[None]:
    """Stop or start the claiming of a queue; running jobs go on. Pausing twice is one pause."""
    yield BEGIN
    changed: Rows = yield Statement("set_paused", {"queue": queue, "paused": paused})
    if changed:
        yield from note("pause" if paused else "resume", [None], {"by": by, "queue": queue})


def note_each(kind: str, told: Sequence[dict[str, Any]]) -> Op[None]:
    """Several things of one kind that are no single job's."""
    yield Statement(
        "note", rows=[{"job": None, "kind": kind, "data": json.dumps(one)} for one in told]
    )


def note(kind: str, jobs: Sequence[str | None], data: dict[str, Any]) -> Op[None]:
    text = json.dumps(data)
    yield Statement("note", rows=[{"job": job, "kind": kind, "data": text} for job in jobs])
