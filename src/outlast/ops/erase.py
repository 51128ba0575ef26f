"""Erase an ended job: its arguments, result and messages are deleted; its final state stays."""

from __future__ import annotations

import json

from ..model.errors import Erased, TooEarly
from ..model.job import Job, lenient_json
from ..model.timestamps import to_datetime
from .access import ALL_JOBS, Access
from .archive import restore
from .blobs import names
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .report import job as one_job

BlobNames = tuple[str, ...]  # of blobs without a reference left


def erase(id: str, by: str, reach: Access = ALL_JOBS) -> Op[tuple[Job, BlobNames]]:
    """Erase an ended job; idempotent. Jobs that have not ended are refused. The key stays, and so
    does the guarantee that it represents one job."""
    yield BEGIN
    blobs = yield from _erase_job(id, {"by": by}, reach)
    if blobs is None and (yield from restore([id], reach)):
        blobs = yield from _erase_job(id, {"by": by}, reach)
    job = yield from one_job(id, reach)
    if blobs is None:
        raise TooEarly(job=id, state=job.state)
    return job, blobs


def take_result(id: str, by: str, action: str, reach: Access = ALL_JOBS) -> Op[BlobNames]:
    """Erase a job whose result was read. Of two concurrent readers only the first succeeds. Under
    the same action it is idempotent, also after a lost response."""
    yield BEGIN
    asked = Statement("hold_result", {"id": id, **reach.params})
    held: Rows = yield asked
    if not held and (yield from restore([id], reach)):
        held = yield asked
    if not held:
        job = yield from one_job(id, reach)
        raise TooEarly(job=id, state=job.state)
    [(forgotten, needed)] = held
    if forgotten:
        error = yield from erased_error(id)
        if error.facts["action"] == action:
            return ()
        raise error
    if needed:
        raise TooEarly(
            f"job {id} cannot be erased yet: jobs of its flow have not ended, or are dead and may"
            " be retried, and could read its result",
            job=id,
            state="succeeded",
        )
    return (yield from _erase_job(id, {"by": by, "read": True, "action": action}, reach)) or ()


def erased_error(id: str) -> Op[Erased]:
    """The error for readers of an erased job's result: who erased it, and when."""
    rows: Rows = yield Statement("erased_by", {"id": id})
    data, at = (lenient_json(rows[0][0]), to_datetime(rows[0][1])) if rows else ({}, None)
    by = data.get("by", "another client")
    return Erased(job=id, by=by, at=at and at.isoformat(), action=data.get("action"))


def _erase_job(id: str, data: dict[str, object], reach: Access) -> Op[BlobNames | None]:
    """Erase all of a job and record it; None if the job has not ended."""
    ids = json.dumps([id])
    yield Statement("hold_prerequisites", {"ids": ids})  # locked: its references cannot change
    referred: Rows = yield Statement("referred", {"ids": ids})
    forgotten: Rows = yield Statement("erase_job", {"id": id, **reach.params})
    if not forgotten:
        return None
    yield Statement("erase_attempts", {"id": id})
    yield Statement("erase_events", {"id": id})
    yield Statement("prune_steps", {"ids": ids})
    yield Statement("prune_waits", {"ids": ids})
    yield Statement("prune_streams", {"ids": ids})
    yield Statement("prune_signals", {"ids": ids})
    yield Statement("prune_links", {"ids": ids})
    yield Statement("erase_flow_digest", {"id": id})
    yield from record_action("forget", [id], data)
    return names(referred)
