"""Insert many jobs at once: COPY on PostgreSQL, one prepared INSERT on SQLite.

    clock and lanes ─▶ rows ─▶ commit

Only for jobs that cannot conflict: new ids, no keys, no flows. If an id exists already, because the
jobs were sent before and the response was lost, all are refused, and `enqueue` finds the existing
ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from ..model.job import Job, NewJob, read_args
from ..model.lane import BY_TENANT, DEFAULT_LANE
from ..model.lifecycle import State
from ..model.timestamps import to_datetime
from .enqueue import enqueue, parts_of
from .operation import (
    BEGIN_PART,
    AlikeRows,
    BulkInsert,
    Op,
    Pipeline,
    Statement,
    creates_database,
)

MIN_JOBS = 20  # fewer are faster in one statement, in one round trip
JOBS_PER_PART = 250

Lanes = dict[str, str]  # of limited queues: the rule that chooses a job's lane

_alike = attrgetter(
    "tenant", "queue", "lane", "task", "priority", "max_attempts", "max_crashes", "timeout",
    "retry", "trace", "tied", "hooks",
)  # fmt: skip


def can_copy(jobs: Sequence[NewJob]) -> bool:
    """Whether `enqueue_many` can insert these jobs."""
    if len(jobs) < MIN_JOBS:
        return False
    for job in jobs:  # noqa: SIM110 - a generator would be another call for each
        if job.key is not None or not job.is_plain:
            return False
    return True


@creates_database
def enqueue_many(jobs: Sequence[NewJob]) -> Op[list[Job]]:
    """Insert jobs that are ready now, all or none; returns them in the order given."""
    made: list[Job] = []
    for part in parts_of(jobs):
        yield BEGIN_PART
        yield from _copy(part, made)
    return made


def _copy(jobs: Sequence[NewJob], made: list[Job] | None) -> Op[None]:
    queues = json.dumps(sorted({job.queue for job in jobs}))
    ((stored, epoch),), lanes = yield Pipeline(
        [Statement("clock_of_copy"), Statement("lane_rules", {"queues": queues})]
    )
    at = to_datetime(epoch)
    yield BulkInsert("copy_jobs", _rows(jobs, dict(lanes), stored, at, made))


@creates_database
def enqueue_parts(
    parts: Callable[[], Iterable[Sequence[NewJob]]], *, copying: bool, ours: bool = True
) -> Op[None]:
    """Insert jobs that are in no flow, part by part, all or none. If the connection breaks, the
    operation restarts and requests the parts again."""
    for part in parts():
        yield BEGIN_PART
        if copying and can_copy(part):
            yield from _copy(part, None)
        else:
            yield from enqueue(part, ours=ours)


def _rows(
    jobs: Sequence[NewJob], rules: Lanes, stored: object, at: datetime, made: list[Job] | None
) -> Iterator[AlikeRows]:
    """Rows, part by part. If the caller wants the jobs, they are appended to `made` while the
    server works on the previous part."""
    for start in range(0, len(jobs), JOBS_PER_PART):
        part = jobs[start : start + JOBS_PER_PART]
        for _, group in groupby(part, _alike):
            run = list(group)
            job, lane = run[0], _lane(run[0], rules)
            alike = (
                job.tenant, job.queue, lane, job.task, job.priority, stored, job.max_attempts,
                job.max_crashes, job.timeout, job.retry, job.trace, stored, job.tied, job.hooks,
                "ready",
            )  # fmt: skip
            yield AlikeRows(alike, [(one.id, one.args) for one in run])
            if made is not None:
                made += [_ready_job(one, lane, at) for one in run]


def _lane(job: NewJob, rules: Lanes) -> str | None:
    """The lane of a job; the same rule as in insert_jobs."""
    if job.lane is not None or job.queue not in rules:
        return job.lane
    return job.tenant if rules[job.queue] == BY_TENANT else DEFAULT_LANE


def _ready_job(new: NewJob, lane: str | None, at: datetime) -> Job:
    return Job(
        new.id, new.task, new.queue, State.READY, 0, read_args(new.args), None, None, at, at,
        None, None, None, new.tenant, new.priority, max_attempts=new.max_attempts,
        max_crashes=new.max_crashes, timeout=new.timeout, trace=new.trace, lane=lane,
    )  # fmt: skip
