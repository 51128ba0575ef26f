"""Models of responses, from which the OpenAPI description is generated. Values of the library that
are sent unchanged describe themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field, RootModel

from ...model.lifecycle import State
from ...ops.report import Attempt, Duty, Event


class WaitView(BaseModel):
    """The wait of a job's handler."""

    name: str
    kind: Literal["sleep", "signal", "job", "flow"]
    for_: list[str] = Field(alias="for", description="names of signals, or the id of a job or flow")
    since: datetime
    until: datetime | None = Field(description="when the wait ends or times out; null: never")


class JobLine(BaseModel):
    """A job in lists: without arguments and result."""

    id: str
    task: str
    queue: str
    state: State | Literal["unreadable"]
    attempt: int
    error: object
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
        description="the unreadable part of its row, such as after a manual change; else null"
    )
    waiting: WaitView | None = Field(
        None, description="the wait of its handler; omitted if it does not wait"
    )


class JobView(JobLine):
    """A job at the time of the read, the same in every interface. A value stored by reference is
    shown as `{"outlast:blob": {"bytes": …, "sha256": …}}`."""

    args: Any
    result: Any


class JobPage(BaseModel):
    """A page of jobs, newest first. It may be short or empty if few jobs match: while there is a
    `next`, there may be more."""

    jobs: list[JobLine]
    next: str | None = Field(description="the `cursor` of the next page; null: no more")


class JobReference(BaseModel):
    """A job for a token that may enqueue but not read."""

    id: str
    state: State


class EnqueuedJob(RootModel[JobView | JobReference]):
    """The job; for a token without the scope `read`, only its id and state."""


class Jobs(BaseModel):
    jobs: list[JobView | JobReference] = Field(
        description="in the order of the request; without the scope `read`, only id and state"
    )


class FlowView(BaseModel):
    """A flow at the time of the read, with its jobs counted by state."""

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


class EnqueuedFlow(BaseModel):
    flow: str | None = Field(
        description="the flow's id; null: all of its jobs existed before, by their keys"
    )
    jobs: list[JobView | JobReference] = Field(
        description="without the scope `read`, only id and state"
    )


class Done(BaseModel):
    """The number of jobs changed. While there is a `next`, there may be more."""

    done: int
    next: str | None


class BulkDone(Done):
    """The number of jobs changed, and why other matching jobs were skipped."""

    matched: int = Field(description="jobs that this request found")
    left: dict[str, int] = Field(
        description="skipped jobs by reason: their current state, or another reason"
    )
    more: int = Field(description="additional jobs, which were dead because of matching ones")


class SignalSent(BaseModel):
    job: str
    signal: str
    new: bool = Field(description="false: a signal with this key was sent before")
    woken: bool = Field(description="whether the job was waiting for it, and continues")


class Explanation(BaseModel):
    job: str
    state: State | Literal["unreadable"]
    explanation: str = Field(description="why the job is waiting, or how it ended, in words")


class JobHistory(BaseModel):
    attempts: list[Attempt] = Field(description="unsuccessful attempts: the latest thousand")
    events: list[Event]
    next: int | None = Field(description="the `after` of the next page; null: no more")


class Result(BaseModel):
    """The result of a job, or its state if it has not ended (status 202)."""

    id: str
    state: State | Literal["unreadable"]
    result: Any
    error: object


class Counts(BaseModel):
    """Jobs by state, counted `age` seconds ago."""

    counts: dict[str, int]
    total: int
    age: float = Field(description="seconds since the count")


class BreakerView(BaseModel):
    """An open circuit breaker: the task's jobs in this queue stay ready, and spend no attempts."""

    task: str
    kind: str = Field(description="the type of the error that opened it")
    message: str | None = Field(description="the latest error; null for a token of one tenant")
    opened_by: str | None = Field(description="a worker; null for a token of one tenant")
    opened_at: datetime
    open_for: float = Field(description="seconds")
    probes: int = Field(description="number of probes made")
    next_probe: float = Field(description="seconds until the next probe")
    probing: bool = Field(description="a probe is in flight")


class QueueView(BaseModel):
    name: str
    paused: bool
    counts: dict[str, int]
    oldest: float | None = Field(description="age of the oldest ready job in seconds")
    keep: float | None = Field(
        description="maximum seconds to keep ended jobs; null: as in all queues"
    )
    breakers: list[BreakerView] = Field(description="open circuit breakers of its tasks")
    limits: dict[str, Any] = Field(description="limits in force, by name; rates are per second")


class Queues(BaseModel):
    queues: list[QueueView]
    age: float = Field(description="seconds since the count")


class LaneView(BaseModel):
    lane: str
    ready: int
    oldest: float = Field(description="seconds since the oldest ready job became due")
    running: int
    limit: int | None = Field(description="maximum concurrent jobs of the lane")
    paused: bool


class Lanes(BaseModel):
    queue: str
    lanes: list[LaneView] = Field(description="at most 50, by number of ready jobs")


class QueueLimitsView(BaseModel):
    queue: str
    limits: dict[str, Any] = Field(description="limits in force; rates are per second")
    overrides: dict[str, object] = Field(description="limits changed at run time")


class QueueKeep(BaseModel):
    queue: str
    keep: float | None


class BreakersClosed(BaseModel):
    queue: str
    closed: int = Field(description="number of breakers closed; 0: none was open")
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


class DrainState(BaseModel):
    worker: str
    draining: bool


class Duties(BaseModel):
    duties: list[Duty]
