"""An ended job is forgotten: what it was given, gave and said is erased; how it ended stays."""

from __future__ import annotations

import json

from ..model.errors import TooEarly
from ..model.job import Job
from .operate import note
from .reach import EVERYTHING, Reach
from .report import job as one_job
from .statement import BEGIN, Op, Rows, Statement


def forget(id: str, by: str, reach: Reach = EVERYTHING) -> Op[Job]:
    """Forgetting twice is forgetting once; what has not ended cannot be forgotten. Its key stays,
    and with it the promise that the key stands for one job."""
    yield BEGIN
    forgotten: Rows = yield Statement("forget_job", {"id": id, **reach.params})
    job = yield from one_job(id, reach)
    if not forgotten:
        raise TooEarly(job=id, state=job.state)
    yield Statement("forget_attempts", {"id": id})
    yield Statement("forget_events", {"id": id})
    yield Statement("prune_steps", {"ids": json.dumps([id])})
    yield from note("forget", [id], {"by": by})
    return job
