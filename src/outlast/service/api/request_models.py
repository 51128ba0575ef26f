"""Models of requests: they validate, and the OpenAPI description is generated from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
)

from ...model.lifecycle import State
from ...model.options import MAX_NAME_CHARS, MAX_PRIORITY, MIN_PRIORITY
from ...model.retry import MAX_ATTEMPTS, MAX_DELAY_S

MAX_CRASHES_LIMIT = 1000
MAX_REASON_LENGTH = 500


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain unprintable characters")
    return text


def _queue(text: str) -> str:
    if text.startswith("!"):
        raise ValueError("must not start with '!'")
    return text


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(_printable)
]
QueueName = Annotated[Name, AfterValidator(_queue)]
Seconds = Annotated[float, Field(ge=0, le=MAX_DELAY_S, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=MAX_DELAY_S, allow_inf_nan=False)]
Reason = Annotated[str, StringConstraints(max_length=MAX_REASON_LENGTH), AfterValidator(_printable)]
When = Literal["succeeded", "finished"]


class RequestModel(BaseModel):
    """Rejects unknown fields: a misspelt option would have no effect."""

    model_config = ConfigDict(extra="forbid")


class SearchQuery(RequestModel):
    state: State | None = None
    queue: Name | None = None
    task: Name | None = None


class PageQuery(SearchQuery):
    cursor: UUID | None = Field(None, description="`next` of the previous page")
    limit: int | None = Field(None, ge=1, le=10_000, description="maximum jobs; default 50")


class NewJobBody(RequestModel):
    """A job to enqueue. Missing options default to the task's, else to the general defaults."""

    task: Name
    args: dict[str, Any] = Field(default_factory=dict, description="arguments by name")
    queue: QueueName | None = None
    lane: Name | None = Field(
        None, description="lane of a limited queue; default: by the task or the queue"
    )
    priority: int | None = Field(None, ge=MIN_PRIORITY, le=MAX_PRIORITY)
    key: Name | None = Field(None, description="idempotency key: a repeat returns the first job")
    unique: Annotated[str, StringConstraints(max_length=40)] | Positive | None = Field(
        None,
        description="how the key is unique: `waiting`, `active`, or a period (seconds or `10m`)",
    )
    debounce: Positive | None = Field(
        None,
        description="seconds after the last request of the key; replaces the waiting job's args",
    )
    max_wait: Positive | None = Field(
        None, description="maximum seconds that requests of a debounced key postpone the job"
    )
    delay: Seconds | None = Field(None, description="seconds before the job may start")
    at: datetime | None = Field(None, description="start time, instead of a delay")
    expires: Positive | None = Field(
        None, description="seconds after which the job is cancelled unless it has started"
    )
    timeout: Positive | None = Field(None, description="maximum seconds of one attempt")
    max_attempts: int | None = Field(None, ge=1, le=MAX_ATTEMPTS)
    max_crashes: int | None = Field(None, ge=1, le=MAX_CRASHES_LIMIT)
    after: list[Name] = Field(
        default_factory=list,
        max_length=1000,
        description="ids of jobs to wait for; in a flow also names of its jobs",
    )
    when: When | None = Field(None, description="how the jobs in `after` must have ended")
    tell: list[Name] = Field(
        default_factory=list,
        max_length=10,
        description="names of the app's webhooks to notify when the job ends",
    )


class JobsBody(RequestModel):
    jobs: list[NewJobBody] = Field(min_length=1, max_length=10_000)


class FlowJobBody(NewJobBody):
    """A job of a flow; other jobs of the flow can wait for it by its name."""

    name: Name | None = None


class ChainBody(RequestModel):
    """Parts that run one after the other."""

    chain: list[Part] = Field(max_length=10_000)


class GroupBody(RequestModel):
    """Parts that run in parallel; `fail_fast` cancels the rest after that many failures."""

    group: list[Part] = Field(max_length=10_000)
    fail_fast: bool | Annotated[int, Field(ge=1, le=10_000)] = False


def _part_kind(body: object) -> str:
    """The kind of a part, by its fields. Trying each kind in turn would take seconds for a body of
    a megabyte, and report every mistake three times."""
    named = body if isinstance(body, dict) else {}
    return next((kind for kind in ("chain", "group") if kind in named), "job")


_Chain = Annotated[ChainBody, Tag("chain")]
_Group = Annotated[GroupBody, Tag("group")]
Part = Annotated[Annotated[FlowJobBody, Tag("job")] | _Chain | _Group, Discriminator(_part_kind)]


class FlowBody(RequestModel):
    """A flow in one of two forms: `jobs` that list their prerequisites in `after`, or a `flow` of
    chains and groups."""

    name: Name | None = None
    key: Name | None = Field(
        None, description="idempotency key: a repeat returns the jobs of the first flow"
    )
    fail_fast: bool | Annotated[int, Field(ge=1, le=10_000)] = False
    jobs: list[FlowJobBody] | None = Field(None, min_length=1, max_length=10_000)
    flow: Annotated[_Chain | _Group, Discriminator(_part_kind)] | None = None


ChainBody.model_rebuild()
GroupBody.model_rebuild()


class ReasonBody(RequestModel):
    reason: Reason = Field("", description="stored with the job")


class ManyBody(RequestModel):
    """A filter of jobs, and the maximum number for this request."""

    queue: Name | None = None
    task: Name | None = None
    cursor: UUID | None = Field(None, description="`next` of the previous request")
    limit: int | None = Field(None, ge=1, le=10_000, description="maximum jobs; default 1000")


class RedriveBody(ManyBody):
    state: Literal["dead", "cancelled"] = "dead"


class CancelBody(ManyBody):
    state: Literal["waiting", "scheduled", "ready", "running"] | None = None
    reason: Reason = ""


class PurgeBody(ManyBody):
    state: Literal["succeeded", "dead", "cancelled"]
    older: Seconds = Field(0.0, description="only jobs that ended at least this many seconds ago")


Priority = Annotated[int, Field(ge=MIN_PRIORITY, le=MAX_PRIORITY)]
Queued = Literal["waiting", "scheduled", "ready"]


class RescheduleBody(ManyBody):
    """Another start time for jobs that have not started: `delay`, or `at`."""

    state: Literal["scheduled", "ready"] = "scheduled"
    delay: Seconds | None = Field(None, description="seconds from now")
    at: AwareDatetime | None = Field(None, description="start time, instead of a delay")


class PrioritizeBody(ManyBody):
    state: Queued = "ready"
    priority: Priority


class MoveBody(ManyBody):
    """Another queue, or another lane, for the jobs of `queue` that have not started."""

    state: Queued = "ready"
    to: QueueName | None = Field(None, description="the queue that the jobs are moved to")
    lane: Name | None = Field(None, description="a lane of `queue`, instead of another queue")


class HistoryQuery(RequestModel):
    after: int = Field(0, ge=0, le=2**62, description="events after this one")
    limit: int | None = Field(None, ge=1, le=10_000, description="maximum events; default 200")


class ResultQuery(RequestModel):
    wait: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = Field(
        0.0, description="seconds to wait for the job's end; the server has a limit"
    )


class SignalBody(RequestModel):
    """A value for a job that waits, or will wait, for it."""

    value: Any = Field(None, description="any JSON; of the type that the task declares")
    key: Name | None = Field(
        None, description="of several signals of this name with one key, the first is kept"
    )


class QueueBody(RequestModel):
    queue: QueueName


class BreakerBody(QueueBody):
    task: Name | None = Field(None, description="the breaker's task; null: all of the queue")


class KeepBody(QueueBody):
    keep: Seconds | None = Field(
        description="maximum seconds to keep ended jobs; null: the general retention"
    )


class LanesQuery(QueueBody):
    pass


class LimitBody(QueueBody):
    changes: dict[str, object] = Field(
        {},
        description="limits by name (running, lane_running, rate, lane_rate, burst, weights,"
        " on_dead, most_waiting, overflow, quota, lane_quota); null lifts one",
    )
    reset: bool = Field(False, description="first restore the declaration in code")


class WorkerBody(RequestModel):
    worker: Name
