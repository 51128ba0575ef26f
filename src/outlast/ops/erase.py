"""An ended job is forgotten: what it was given, gave and said is erased; how it ended stays."""

from __future__ import annotations

import json

from ..model.errors import Erased, TooEarly
from ..model.job import Job, lenient_json
from ..model.timestamps import to_datetime
from .access import ALL_JOBS, Access
from .blobs import names
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .report import job as one_job

BlobNames = tuple[str, ...]  # the names of those that nobody refers to any more


def erase(id: str, by: str, reach: Access = ALL_JOBS) -> Op[tuple[Job, BlobNames]]:
    """Forgetting twice is forgetting once; what has not ended cannot be forgotten. Its key stays,
    and with it the promise that the key stands for one job."""
    yield BEGIN
    blobs = yield from _erase_job(id, {"by": by}, reach)
    job = yield from one_job(id, reach)
    if blobs is None:
        raise TooEarly(job=id, state=job.state)
    return job, blobs


def take_result(id: str, by: str, action: str, reach: Access = ALL_JOBS) -> Op[BlobNames]:
    """Forget a job whose result was read, for the one who did: of two only the first may say that
    he has it. Under the name of an action it is done once, also if the answer to it got lost."""
    yield BEGIN
    held: Rows = yield Statement("hold_result", {"id": id, **reach.params})
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
            " get a new life, and could ask for its result",
            job=id,
            state="succeeded",
        )
    return (yield from _erase_job(id, {"by": by, "read": True, "action": action}, reach)) or ()


def erased_error(id: str) -> Op[Erased]:
    """Who had a job forgotten, and when: as the error for whoever asks for its result."""
    rows: Rows = yield Statement("erased_by", {"id": id})
    data, at = (lenient_json(rows[0][0]), to_datetime(rows[0][1])) if rows else ({}, None)
    by = data.get("by", "somebody")
    return Erased(job=id, by=by, at=at and at.isoformat(), action=data.get("action"))


def _erase_job(id: str, data: dict[str, object], reach: Access) -> Op[BlobNames | None]:
    """All of it, on record; None if it has not ended."""
    ids = json.dumps([id])
    yield Statement("hold_prerequisites", {"ids": ids})  # held: what it refers to stays the same
    referred: Rows = yield Statement("referred", {"ids": ids})
    forgotten: Rows = yield Statement("erase_job", {"id": id, **reach.params})
    if not forgotten:
        return None
    yield Statement("erase_attempts", {"id": id})
    yield Statement("erase_events", {"id": id})
    yield Statement("prune_steps", {"ids": ids})
    yield Statement("erase_flow_digest", {"id": id})
    yield from record_action("forget", [id], data)
    return names(referred)
