"""Actions of operators on jobs: cancel, redrive, pause, resume. Every action is recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..model.errors import TooLate
from ..model.job import Job
from ..model.lifecycle import State
from ..model.outcome import reason
from .access import ALL_JOBS, Access
from .dependents import notify_dependents
from .flow_links import FAILED_STATES, recount, recount_followers
from .operation import BEGIN, Op, Pipeline, Rows, Statement
from .report import job as one_job
from .unique_keys import keys_to_revive


def cancel(id: str, by: str, reason: str, reach: Access = ALL_JOBS) -> Op[Job]:
    """Cancel a queued job, or ask a running one to stop. Idempotent."""
    yield BEGIN
    changed: Rows = yield cancel_statement(id, by, reason, reach)
    if changed == [(State.CANCELLED, True)]:
        yield from notify_dependents([(id, State.CANCELLED)])
    job = yield from one_job(id, reach)
    if changed:
        yield from record_action(
            "cancel", [id], {"by": by, "reason": reason, "state": str(job.state)}
        )
    elif not (job.state is State.CANCELLED or (job.state is State.RUNNING and job.cancelling)):
        raise TooLate(job=id, state=job.state)
    return job


def cancel_statement(
    id: str, by: str, reason: str, reach: Access = ALL_JOBS, *, asking: bool = True
) -> Statement:
    """Cancel a queued job; with `asking`, ask the owner of a running one to stop."""
    error = {"type": "Cancelled", "message": reason or f"cancelled by {by}", "traceback": ""}
    given = {"id": id, "error": json.dumps(error), "asking": asking, **reach.params}
    return Statement("cancel", given)


def redrive(
    ids: Sequence[str],
    by: str,
    action: str = "",
    opens: bool = True,
    reach: Access = ALL_JOBS,
    ours: bool = True,
) -> Op[list[str]]:
    """Redrive dead or cancelled jobs and the jobs that died because of them; returns the ids of the
    redriven ones. A job whose prerequisite stays dead stays dead, too. Under an action's name, jobs
    redriven by an earlier call with a lost response are returned as well. With `opens`, cancelled
    flows are reopened; otherwise their jobs are left alone. A transaction that is not `ours` may
    stay open for long: it locks no prerequisite, and a worker counts these again after the
    commit."""
    yield BEGIN
    doomed: Rows = yield Statement("failed_because_of", {"ids": json.dumps(sorted(ids))})
    wanted = sorted({*ids, *(id for (id,) in doomed)})
    if reach != ALL_JOBS:  # dependents and flows may belong to another tenant
        own: Rows = yield Statement("jobs_in_reach", {"ids": json.dumps(wanted), **reach.params})
        wanted = sorted(id for (id,) in own)
    # Lock flows before jobs, as joins do, and prerequisites before their dependents.
    if opens:
        yield Statement("reopen_flows_of", {"ids": json.dumps(wanted)})
    else:
        open_ones: Rows = yield Statement("in_open_flows", {"ids": json.dumps(wanted)})
        wanted = sorted(id for (id,) in open_ones)
    if ours:
        yield Statement("hold_prerequisites_of", {"ids": json.dumps(wanted)})
    keyless = yield from keys_to_revive(wanted)
    wanted = [id for id in wanted if id not in keyless]
    rows: Rows = yield Statement("redrive", {"ids": json.dumps(wanted), **reach.params})
    waiting = [id for id, state, _ in rows if state == State.WAITING]
    failed_again = yield from _failed_again(waiting)
    if waiting and not ours:
        yield Statement("mark_unlinked", {"ids": json.dumps(waiting)})
    if tied := [id for id, _, tied in rows if tied]:
        yield from recount_followers(tied)  # prerequisites counted as ended are unfinished again
    revived = [id for id, _, _ in rows if id not in failed_again]
    if revived:
        given = {"ids": json.dumps(revived)}
        reset = [Statement("reset_group_failures", given)] if opens and tied else []
        yield Pipeline([Statement("reopen_waits", given), *reset])
        data = {"by": by, "action": action} if action else {"by": by}
        yield from record_action("redrive", revived, data)
    if action and len(revived) < len(wanted):
        given = {"ids": json.dumps(wanted), "action": action}
        before: Rows = yield Statement("redriven", given)
        revived = [id for (id,) in before]
    return revived


def _failed_again(ids: Sequence[str]) -> Op[set[str]]:
    """Recount the prerequisites of redriven jobs: those with a prerequisite that stays dead end
    again, and so do their dependents."""
    counted = (yield from recount(ids)) if ids else []
    again = {id for id, state, _, _ in counted if state in FAILED_STATES}
    if again:
        doomed: Rows = yield Statement("fail_followers", {"ids": json.dumps(sorted(again))})
        again |= {id for id, _, _ in doomed}
    return again


def redrive_one(id: str, by: str, reach: Access = ALL_JOBS, ours: bool = True) -> Op[Job]:
    """Redrive a job, or raise with the reason. No effect on a queued or running job. A transaction
    that is not `ours` may stay open for long."""
    if reach != ALL_JOBS:
        yield from one_job(id, reach)  # a job's tenant never changes, so this check stays valid
    revived = yield from redrive([id], by, reach=reach, ours=ours)
    job = yield from one_job(id, reach)
    if not revived and job.state is State.SUCCEEDED:
        raise TooLate(job=id, state=job.state)
    if holder := (yield from keys_to_revive([id])).get(id):
        raise TooLate(
            f"job {id} cannot run: its key {job.key!r} is unique while active, and job {holder}"
            " of that key has not ended",
            job=id,
            state=job.state,
        )
    if job.state in FAILED_STATES:
        raise TooLate(
            f"job {id} cannot run: {reason(job.error)}; retry that job, and this one follows",
            job=id,
            state=job.state,
        )
    return job


def set_paused(queue: str, paused: bool, by: str) -> Op[None]:
    """Pause or resume the claiming of a queue; running jobs continue. Idempotent."""
    yield BEGIN
    changed: Rows = yield Statement("pause_queue" if paused else "resume_queue", {"queue": queue})
    if changed:
        yield from record_action(
            "pause" if paused else "resume", [None], {"by": by, "queue": queue}
        )


def record_actions(kind: str, data: Sequence[dict[str, object]]) -> Op[None]:
    """Record several actions of one kind that belong to no single job."""
    yield Statement(
        "record_action", rows=[{"job": None, "kind": kind, "data": json.dumps(one)} for one in data]
    )


def record_action(kind: str, jobs: Sequence[str | None], data: Mapping[str, object]) -> Op[None]:
    yield action_statement(kind, jobs, data)


def action_statement(
    kind: str, jobs: Sequence[str | None], data: Mapping[str, object]
) -> Statement:
    text = json.dumps(data)
    return Statement(
        "record_action", rows=[{"job": job, "kind": kind, "data": text} for job in jobs]
    )
