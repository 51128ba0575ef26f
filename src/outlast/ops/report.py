"""Reports: jobs, their history, queues, workers, duties. Reads only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from ..model.errors import JobNotFound
from ..model.job import Job, lenient_json, read_job, read_result
from ..model.lane import in_force
from ..model.lifecycle import State
from ..model.timestamps import age, to_datetime
from ..model.unreadable import read_state, read_whole
from ..model.worker_names import is_offer
from . import archive
from .access import ALL_JOBS, Access
from .breaker_report import BreakerState, breakers
from .operation import Op, Pipeline, Row, Rows, Statement

HIGHEST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"  # sorts after every id


MAX_EVENTS_SHOWN = MAX_ATTEMPTS_SHOWN = 1000  # of one job
MAX_AHEAD = 10_000  # jobs ahead of another one; the count stops there


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of jobs; None matches all."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that was not a first-try success."""

    attempt: int
    worker: str | None
    outcome: str
    error: Any
    started_at: datetime | None
    finished_at: datetime | None
    fence: int


@dataclass(frozen=True, slots=True)
class Event:
    """A recorded event of a job: progress, a log line, an operator's action."""

    seq: int
    attempt: int | None
    kind: str
    data: Any
    at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """A stored step of a job, and the attempt that stored it."""

    name: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A registered worker process."""

    id: str
    host: str
    pid: int
    queues: list[str] | None  # None: all queues
    tasks: list[str]
    concurrency: int
    running: int
    state: str
    version: str
    lease: float
    started_at: datetime
    seen_at: datetime
    silent_for: float

    @property
    def alive(self) -> bool:
        return self.silent_for < self.lease

    def serves(self, queue: str) -> bool:
        """Whether it runs jobs of a queue. A server that only offers jobs runs none."""
        return self.concurrency > 0 and (self.queues is None or queue in self.queues)


@dataclass(slots=True)
class Queue:
    """A queue: its settings, and its jobs counted by state."""

    name: str
    paused: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    oldest: float | None = None  # age of the oldest ready job in seconds
    keep: float | None = None  # maximum seconds that ended jobs are kept; None: the default
    breakers: list[BreakerState] = field(default_factory=list)  # the open ones of its tasks
    limits: dict[str, Any] = field(default_factory=dict)  # by name


@dataclass(frozen=True, slots=True)
class Duty:
    name: str
    every: float
    next_at: datetime
    worker: str | None
    succeeded_at: datetime | None
    found: int
    healed: int
    skipped: int
    failed: int
    error: str | None


def job(id: str, reach: Access = ALL_JOBS) -> Op[Job]:
    """A job, or an archived one."""
    asked = Statement("job", {"id": id, **reach.params})
    rows = yield from archive.find(asked, "past_job", [id], **reach.params)
    if not rows:
        raise JobNotFound(job=id)
    return read_job(rows[0])


def jobs(chosen: Filter, before: str | None, limit: int) -> Op[list[Job]]:
    """A page of jobs, newest first; `before` is the last id of the page before."""
    params = {
        "queue": chosen.queue,
        "task": chosen.task,
        "tenant": chosen.tenant,
        "before": before or HIGHEST_ID,
        "limit": limit,
    }
    if chosen.state is None:
        asked = Statement("jobs", params)
    else:
        asked = Statement("jobs_in_state", params | {"state": chosen.state})
    rows = yield from archive.with_past(asked, Statement("past_jobs", params), chosen.state)
    return [read_job(row) for row in rows[:limit]]


def count(chosen: Filter) -> Op[int]:
    """The number of matching jobs."""
    rows: Rows = yield Statement("count_jobs", asdict(chosen))
    number = int(rows[0][0])
    if archive.holds(chosen.state):
        which = {"queue": chosen.queue, "task": chosen.task, "tenant": chosen.tenant}
        number += yield from archive.count(**which)
    return number


ERASED = object()  # in place of an erased result


def ended(ids: Sequence[str]) -> Op[dict[str, tuple[State, Any, Any]]]:
    """State, result and error of the jobs that exist."""
    asked = Statement("ended", {"ids": json.dumps(list(ids))})
    rows = yield from archive.find(asked, "past_ended", ids)
    return {
        id: (read_state(state), ERASED if gone else read_result(result), lenient_json(error))
        for id, state, result, error, gone in rows
    }


def counts() -> Op[dict[str, int]]:
    rows: Rows = yield Statement("counts")
    found = {str(state): 0 for state in State} | {state: int(number) for state, number in rows}
    found[State.SUCCEEDED] += yield from archive.count()
    return found


def history(id: str, limit: int = MAX_EVENTS_SHOWN) -> Op[tuple[list[Attempt], list[Event]]]:
    """The attempts of a job and its recorded events: the latest of both, in order."""
    latest = Statement("latest_events", {"id": id, "limit": limit})
    attempts, events = yield Pipeline([_attempts(id), latest])
    return [_attempt(row) for row in reversed(attempts)], [_event(row) for row in reversed(events)]


def history_page(id: str, after: int, limit: int) -> Op[tuple[list[Attempt], list[Event]]]:
    """The same, with the first events after another one."""
    page = Statement("events", {"id": id, "after": after, "limit": limit})
    attempts, events = yield Pipeline([_attempts(id), page])
    return [_attempt(row) for row in reversed(attempts)], [_event(row) for row in events]


def _attempts(id: str) -> Statement:
    return Statement("attempts", {"id": id, "limit": MAX_ATTEMPTS_SHOWN})


def steps(id: str) -> Op[list[Step]]:
    """The stored steps of a job."""
    rows: Rows = yield Statement("steps", {"id": id})
    return [Step(name, attempt, to_datetime(at)) for name, attempt, at in rows]


def queues() -> Op[list[Queue]]:
    settings, counted = yield Pipeline([Statement("queue_settings"), Statement("queue_counts")])
    found = {row[0]: _queue(*row) for row in settings}
    for name, state, number, oldest in counted:
        queue = found.setdefault(name, Queue(name))
        queue.counts[state] = int(number)
        if state == State.READY:
            queue.oldest = age(oldest)
    for breaker in (yield from breakers()):
        found.setdefault(breaker.queue, Queue(breaker.queue)).breakers.append(breaker)
    return [found[name] for name in sorted(found)]


def queue_settings() -> Op[dict[str, Queue]]:
    """Queues that have a setting, without a count of their jobs."""
    rows: Rows = yield Statement("queue_settings")
    return {row[0]: _queue(*row) for row in rows}


def _queue(
    name: str, paused: bool, keep: float | None, declared: str | None, overrides: str | None
) -> Queue:
    return Queue(
        name, bool(paused), keep=keep, limits=in_force(name, declared, overrides).as_json()
    )


def paused() -> Op[dict[str, bool]]:
    """The queues with a setting, and whether each is paused."""
    settings = yield from queue_settings()
    return {name: queue.paused for name, queue in settings.items()}


def workers() -> Op[list[WorkerInfo]]:
    """The workers that run jobs."""
    return [worker for worker in (yield from worker_rows()) if not is_offer(worker.id)]


def worker_rows() -> Op[list[WorkerInfo]]:
    """Every process that can own a job, including servers that offer jobs to remote workers."""
    rows: Rows = yield Statement("workers")
    return [_worker(row) for row in rows]


def duties() -> Op[list[Duty]]:
    rows: Rows = yield Statement("duties")
    return [_duty(row) for row in rows]


def schema_version() -> Op[tuple[int, int]]:
    """The version of the tables, and the minimum version that a release must know to use them."""
    rows: Rows = yield Statement("schema_version")
    return int(rows[0][0]), int(rows[0][1])


def clock() -> Op[float]:
    rows: Rows = yield Statement("clock")
    return float(rows[0][0])


def ahead(id: str, reach: Access = ALL_JOBS) -> Op[int]:
    rows: Rows = yield Statement("ahead", {"id": id, "limit": MAX_AHEAD, **reach.params})
    return int(rows[0][0])


def unhandled() -> Op[list[tuple[str, str, int]]]:
    """(queue, task, number) of ready jobs that no live worker can run."""
    ready, rows = yield Pipeline([Statement("unhandled"), Statement("workers")])
    alive = [worker for worker in map(_worker, rows) if worker.alive]
    return [
        (queue, task, int(number))
        for queue, task, number in ready
        if not any(worker.serves(queue) and task in worker.tasks for worker in alive)
    ]


def throughput() -> Op[dict[str, tuple[int, float, float]]]:
    rows: Rows = yield Statement("throughput")
    return {state: (int(n), age(wait or 0), age(run or 0)) for state, n, wait, run in rows}


def _worker(row: Row) -> WorkerInfo:
    facts = dict(zip(_WORKER_COLUMNS, row, strict=True))
    facts["queues"], facts["tasks"] = names_in(facts["queues"]), names_in(facts["tasks"]) or []
    for name in ("started_at", "seen_at"):
        facts[name] = to_datetime(facts[name])
    for name in ("pid", "concurrency", "running"):
        facts[name] = read_whole(facts[name])
    for name in ("silent_for", "lease"):
        facts[name] = age(facts[name])
    return WorkerInfo(**facts)


def names_in(text: str | None) -> list[str] | None:
    """A stored list of names; an unreadable one is empty."""
    read = lenient_json(text)
    if read is None:
        return None
    return [str(name) for name in read] if isinstance(read, list) else []


_WORKER_COLUMNS = tuple(field.name for field in fields(WorkerInfo))


def _duty(row: Row) -> Duty:
    name, every, next_at, worker, succeeded_at, *rest = row
    return Duty(name, every, to_datetime(next_at), worker, to_datetime(succeeded_at), *rest)


def _attempt(row: Row) -> Attempt:
    fence, attempt, worker, outcome, error, started, finished = row
    return Attempt(
        attempt,
        worker,
        outcome,
        lenient_json(error),
        to_datetime(started),
        to_datetime(finished),
        fence,
    )


def _event(row: Row) -> Event:
    seq, attempt, kind, data, at = row
    return Event(seq, attempt, kind, lenient_json(data), to_datetime(at))
