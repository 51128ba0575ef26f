"""What comes out, as models that the description is made from. What comes out as the library has it
is described by the library's own values."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field, RootModel

from ...model.lifecycle import State
from ...ops.report import Attempt, Duty, Event


class JobLine(BaseModel):
    """A job as lists have it: without its arguments and its result."""

    id: str
    task: str
    queue: str
    state: State | Literal["unreadable"]
    attempt: int
    error: Any
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    tenant: str
    priority: int
    key: str | None
    failures: int
    crashes: int
    max_attempts: int
    max_crashes: int
    fence: int
    lease_until: datetime | None
    expires_at: datetime | None
    timeout: float | None
    cancelling: bool
    trace: str | None
    flow: str | None
    waits_for: int
    unreadable: str | None = Field(
        description="what in its row cannot be read, as after a change by hand; else null"
    )


class JobView(JobLine):
    """One call of a task, as it stood when it was read: the same on every path. What is kept by
    reference is shown as `{"outlast:blob": {"bytes": …, "sha256": …}}`."""

    args: Any
    result: Any


class JobPage(BaseModel):
    """A page of jobs, newest first. It may be short, or empty, where little fits: as long as there
    is a `next`, there may be more."""

    jobs: list[JobLine]
    next: str | None = Field(description="give it as `cursor` to go on; null: that was all")


class JobReference(BaseModel):
    """A job as a token sees it that may enqueue and not read."""

    id: str
    state: State


class EnqueuedJob(RootModel[JobView | JobReference]):
    """The job; with a token that lacks the scope `read`, its id and state alone."""


class Jobs(BaseModel):
    jobs: list[JobView | JobReference] = Field(
        description="in the order given; without the scope `read`, id and state alone"
    )


class FlowView(BaseModel):
    """A flow as it stood when it was read: its jobs counted by state."""

    id: str
    name: str | None
    state: Literal["running", "cancelling", "succeeded", "partial", "dead", "cancelled"]
    counts: dict[str, int]
    total: int
    ended: int
    created_at: datetime
    cancelled_at: datetime | None
    reason: str | None
    key: str | None = Field(description="its idempotency key")


class NewFlow(BaseModel):
    flow: str | None = Field(
        description="the flow's id; null: all of its jobs stood already, under their keys"
    )
    jobs: list[JobView | JobReference] = Field(
        description="without the scope `read`, id and state alone"
    )


class Done(BaseModel):
    """How many jobs were changed. As long as there is a `next`, there may be more."""

    done: int
    next: str | None


class BulkDone(Done):
    """The same, and why jobs that matched were left alone."""

    matched: int = Field(description="jobs that this request found")
    left: dict[str, int] = Field(
        description="jobs left alone, by reason: the state that they are in by now, or why not"
    )
    more: int = Field(description="jobs beside those that matched, which were dead because of them")


class Explanation(BaseModel):
    job: str
    state: State | Literal["unreadable"]
    explanation: str = Field(description="in words: what it is waiting for, or how it ended")


class History(BaseModel):
    attempts: list[Attempt] = Field(description="those that did not succeed at once")
    events: list[Event]
    next: int | None = Field(description="give it as `after` to go on; null: that was all")


class Result(BaseModel):
    """How a job ended, or that it has not yet (status 202)."""

    id: str
    state: State | Literal["unreadable"]
    result: Any
    error: Any


class Counts(BaseModel):
    """How many jobs there were in each state, a moment ago."""

    counts: dict[str, int]
    total: int
    age: float = Field(description="seconds since they were counted")


class BreakerView(BaseModel):
    """An open circuit breaker: the task's jobs in this queue are held back, unspent."""

    task: str
    kind: str = Field(description="the type of the error that opened it")
    message: str | None = Field(description="the latest error; null for a token of one tenant")
    opened_by: str | None = Field(description="a worker; null for a token of one tenant")
    opened_at: datetime
    open_for: float = Field(description="seconds")
    probes: int = Field(description="that have been made")
    next_probe: float = Field(description="seconds until one may be made")
    probing: bool = Field(description="one is under way")


class QueueView(BaseModel):
    name: str
    paused: bool
    counts: dict[str, int]
    oldest: float | None = Field(description="seconds the oldest ready job has existed")
    keep: float | None = Field(
        description="seconds what has ended is kept at the most; null: as in all queues"
    )
    breakers: list[BreakerView] = Field(description="circuit breakers of its tasks that are open")


class Queues(BaseModel):
    queues: list[QueueView]
    age: float = Field(description="seconds since they were counted")


class QueueKeep(BaseModel):
    queue: str
    keep: float | None


class BreakersClosed(BaseModel):
    queue: str
    closed: int = Field(description="how many were open; 0: none of that name was")
    open: list[str] = Field(description="tasks of the queue whose breakers are still open")


class QueueState(BaseModel):
    queue: str
    paused: bool


class WorkerView(BaseModel):
    id: str
    host: str
    pid: int
    queues: list[str] | None
    tasks: list[str]
    concurrency: int
    running: int
    state: str
    version: str
    lease: float
    started_at: datetime
    seen_at: datetime
    silent_for: float
    alive: bool


class Workers(BaseModel):
    workers: list[WorkerView]


class WorkerState(BaseModel):
    worker: str
    draining: bool


class Duties(BaseModel):
    duties: list[Duty]
