"""What goes in, as models: it is judged by them, and the description is made from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
)

from ...model.lifecycle import State
from ...model.options import HIGHEST_PRIORITY, LONGEST_NAME, LOWEST_PRIORITY
from ...model.retry import LONGEST, MAX_ATTEMPTS

MOST_CRASHES = 1000
LONGEST_REASON = 500


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has unprintable characters")
    return text


def _queue(text: str) -> str:
    if text.startswith("!"):
        raise ValueError("must not start with '!'")
    return text


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=LONGEST_NAME), AfterValidator(_printable)
]
QueueName = Annotated[Name, AfterValidator(_queue)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)]
Reason = Annotated[str, StringConstraints(max_length=LONGEST_REASON), AfterValidator(_printable)]
When = Literal["succeeded", "finished"]


class Incoming(BaseModel):
    """Says no to what it does not know: a misspelt option would have no effect."""

    model_config = ConfigDict(extra="forbid")


class SearchQuery(Incoming):
    state: State | None = None
    queue: Name | None = None
    task: Name | None = None


class PageQuery(SearchQuery):
    cursor: UUID | None = Field(None, description="where to go on: `next` of the page before")
    limit: int | None = Field(None, ge=1, le=10_000, description="at most so many; else 50")


class NewJobBody(Incoming):
    """A job to be enqueued. What is not said is as the task says, or as for a plain job."""

    task: Name
    args: dict[str, Any] = Field(default_factory=dict, description="the arguments, by name")
    queue: QueueName | None = None
    priority: int | None = Field(None, ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)
    key: Name | None = Field(None, description="one job per key: a second one gets the first")
    delay: Seconds | None = Field(None, description="seconds to wait before it may start")
    at: datetime | None = Field(None, description="start then, instead of a delay")
    expires: Positive | None = Field(
        None, description="seconds: if it has not been started by then, it is cancelled"
    )
    timeout: Positive | None = Field(None, description="seconds one attempt may run")
    max_attempts: int | None = Field(None, ge=1, le=MAX_ATTEMPTS)
    max_crashes: int | None = Field(None, ge=1, le=MOST_CRASHES)
    after: list[Name] = Field(
        default_factory=list,
        max_length=1000,
        description="ids of jobs to wait for; in a flow also names of its jobs",
    )
    when: When | None = Field(None, description="how those must have ended")
    tell: list[Name] = Field(
        default_factory=list,
        max_length=10,
        description="names of webhooks of the program that is served, to be told of its end",
    )


class JobsBody(Incoming):
    jobs: list[NewJobBody] = Field(min_length=1, max_length=10_000)


class FlowJobBody(NewJobBody):
    """A job of a flow, with a name by which others of the flow can wait for it."""

    name: Name | None = None


class ChainBody(Incoming):
    """Parts that come one after the other."""

    chain: list[Part] = Field(max_length=10_000)


class GroupBody(Incoming):
    """Parts side by side; with `fail_fast` the first so many failures have the rest cancelled."""

    group: list[Part] = Field(max_length=10_000)
    fail_fast: bool | Annotated[int, Field(ge=1, le=10_000)] = False


def _kind(body: Any) -> str:
    """Which of them it is meant to be, by what it has: tried as each of them, a body of a megabyte
    would keep everybody waiting for seconds, and get three answers for each mistake."""
    named = body if isinstance(body, dict) else {}
    return next((kind for kind in ("chain", "group") if kind in named), "job")


_Chain = Annotated[ChainBody, Tag("chain")]
_Group = Annotated[GroupBody, Tag("group")]
Part = Annotated[Annotated[FlowJobBody, Tag("job")] | _Chain | _Group, Discriminator(_kind)]


class FlowBody(Incoming):
    """A flow, in one of two ways: `jobs` that name those they come `after`, or a `flow` made of
    chains and groups."""

    name: Name | None = None
    key: Name | None = Field(
        None, description="one flow per key: a second one gets the jobs of the first"
    )
    fail_fast: bool | Annotated[int, Field(ge=1, le=10_000)] = False
    jobs: list[FlowJobBody] | None = Field(None, min_length=1, max_length=10_000)
    flow: Annotated[_Chain | _Group, Discriminator(_kind)] | None = None


ChainBody.model_rebuild()
GroupBody.model_rebuild()


class ReasonBody(Incoming):
    reason: Reason = Field("", description="kept with the job")


class ManyBody(Incoming):
    """Which jobs, and how many of them at the most in this request."""

    queue: Name | None = None
    task: Name | None = None
    cursor: UUID | None = Field(None, description="`next` of the request before")
    limit: int | None = Field(None, ge=1, le=10_000, description="jobs; else 1000")


class RedriveBody(ManyBody):
    state: Literal["dead", "cancelled"] = "dead"


class CancelBody(ManyBody):
    state: Literal["waiting", "scheduled", "ready", "running"] | None = None
    reason: Reason = ""


class PurgeBody(ManyBody):
    state: Literal["succeeded", "dead", "cancelled"]
    older: Seconds = Field(0.0, description="only what ended so many seconds ago, or more")


class HistoryQuery(Incoming):
    after: int = Field(0, ge=0, le=2**62, description="events after this one")
    limit: int | None = Field(None, ge=1, le=10_000, description="events; else 200")


class ResultQuery(Incoming):
    wait: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = Field(
        0.0, description="seconds to wait for the job's end; the server has a limit"
    )


class QueueBody(Incoming):
    queue: QueueName


class BreakerBody(QueueBody):
    task: Name | None = Field(None, description="of which task; null: all of the queue")


class KeepBody(QueueBody):
    keep: Seconds | None = Field(
        description="seconds that what has ended is kept at the most; null: as in all queues"
    )


class WorkerBody(Incoming):
    worker: Name
