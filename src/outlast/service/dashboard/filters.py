"""Filters of jobs, stored in the page's query string, so that a link includes the filter."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field, StringConstraints

from ...model.job import Job
from ...model.lifecycle import State
from ...ops.access import Access
from ...ops.job_lists import JobOrder, ListCursor, selected
from ...ops.search import JobQuery, count_window
from ..api.request_models import Reason, RequestModel
from ..job_counts import by_state
from ..request import RequestContext

COUNT_BUDGET_S = 0.05  # then the count is a lower bound
MAX_SUGGESTIONS = 200  # per field
MAX_SELECTED = 100  # jobs

# The states of jobs that each action applies to.
ACTION_STATES = {
    "cancel": (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING),
    "redrive": (State.DEAD, State.CANCELLED),
    "purge": (State.SUCCEEDED, State.DEAD, State.CANCELLED),
    "reschedule": (State.SCHEDULED, State.READY),
    "prioritize": (State.WAITING, State.SCHEDULED, State.READY),
    "move": (State.WAITING, State.SCHEDULED, State.READY),
}

FilterText = Reason  # printable and bounded


class JobFilter(RequestModel):
    """A filter; empty fields match all jobs."""

    state: State | Literal[""] = ""
    queue: FilterText = ""
    task: FilterText = ""
    tenant: FilterText = ""
    text: FilterText = ""
    error: FilterText = ""

    @property
    def job_query(self) -> JobQuery:
        state = str(self.state) or None
        words = (self.queue, self.task, self.text.strip(), self.error)
        return JobQuery(state, *(word or None for word in words))

    @property
    def query(self) -> dict[str, str]:
        """The filter as query parameters."""
        return {
            name: str(getattr(self, name)) for name in JobFilter.model_fields if getattr(self, name)
        }

    @property
    def is_in_counts(self) -> bool:
        """Whether the cached counts cover this filter."""
        return not (self.text.strip() or self.error)


Sort = Literal[
    "", "enqueued", "due", "-due", "started", "-started", "ended", "-ended"
]  # "-": descending; none: newest first


class JobFilterPage(JobFilter):
    sort: Sort = ""
    cursor: Annotated[str, StringConstraints(pattern=f"^({ListCursor.PATTERN})?$")] = ""

    @property
    def order(self) -> JobOrder:
        """The requested order, if it applies to jobs in this state."""
        order = JobOrder.parse(self.sort)
        return order if order.suits(str(self.state) or None) else JobOrder()

    @property
    def list_query(self) -> dict[str, str]:
        """The filter and the order as query parameters, without a position."""
        return self.query | ({} if self.order == JobOrder() else {"sort": str(self.order)})


def _split(value: object) -> object:
    """Ids from one text, or from several."""
    texts = value if isinstance(value, list | tuple) else [value]
    return [id for text in texts for id in str(text).split(",") if id]


class Selection(JobFilter):
    """A filter, or jobs selected one by one from its list."""

    repeatable: ClassVar[frozenset[str]] = frozenset({"ids"})

    ids: Annotated[tuple[UUID, ...], BeforeValidator(_split), Field(max_length=MAX_SELECTED)] = ()
    chosen: bool = False  # the list's form was sent, whether or not it had a job

    @property
    def is_selection(self) -> bool:
        return self.chosen or bool(self.ids)

    @property
    def selected_ids(self) -> list[str]:
        return list(dict.fromkeys(map(str, self.ids)))

    @property
    def hidden_fields(self) -> dict[str, str]:
        """The selection as hidden form fields."""
        if not self.is_selection:
            return self.query
        return self.query | {"ids": ",".join(self.selected_ids), "chosen": "true"}


@dataclass(frozen=True, slots=True)
class JobTotal:
    """The number of matching jobs, of some `age`; a lower bound unless `exact`."""

    number: int
    exact: bool
    age: float | None = None  # seconds, if that is long


@dataclass(frozen=True, slots=True)
class StateCounts:
    counts: dict[str, int]
    age: float | None  # seconds, if that is long


def access_of(call: RequestContext, job_filter: JobFilter) -> Access:
    """The caller's reach, narrowed to the filter's tenant; a filter never widens it."""
    if job_filter.tenant and call.who.tenant is None:
        return Access(job_filter.tenant, call.who.queues)
    return call.reach


def action_states(action: str, job_filter: JobFilter) -> list[State]:
    """The states that both the action and the filter select, in the order of a job's life: a job
    that moves on in the meantime is found in the next state."""
    if isinstance(job_filter, Selection) and job_filter.is_selection:
        return list(ACTION_STATES[action])
    if action == "purge" and not job_filter.state:
        return []  # an irreversible action needs an explicit state
    if action == "reschedule" and not job_filter.state:
        return []  # it moves jobs from one of these states to another, where they would match again
    if action == "move" and not job_filter.queue:
        return []  # keys and lanes belong to a queue
    return [state for state in ACTION_STATES[action] if job_filter.state in ("", state)]


async def state_counts(call: RequestContext, job_filter: JobFilter) -> StateCounts | None:
    """Counts by state of the jobs that match the rest of the filter, if cached."""
    if not job_filter.is_in_counts:
        return None
    counted = await call.service.job_counts.snapshot()
    kinds = counted.of(access_of(call, job_filter), replace(job_filter.job_query, state=None))
    return StateCounts(by_state(kinds), counted.age if counted.is_stale else None)


async def count_matching(
    call: RequestContext, job_filter: JobFilter, states: list[State]
) -> JobTotal:
    """The number of jobs that an action would affect."""
    if isinstance(job_filter, Selection) and job_filter.is_selection:
        found = await selected_jobs(call, job_filter)
        return JobTotal(sum(job.state in states for job in found), True)
    if (known := await state_counts(call, job_filter)) is not None:
        return JobTotal(sum(known.counts[state] for state in states), True, known.age)
    number, deadline = 0, time.monotonic() + COUNT_BUDGET_S
    for state in states:
        sought, cursor = replace(job_filter.job_query, state=str(state)), None
        while True:
            some, cursor = await call.ol.store.arun(
                count_window, sought, access_of(call, job_filter), cursor
            )
            number += some
            if time.monotonic() > deadline:
                return JobTotal(number, cursor is None and state is states[-1])
            if cursor is None:
                break
    return JobTotal(number, True)


async def selected_jobs(call: RequestContext, selection: Selection) -> list[Job]:
    """The selected jobs that exist, within the caller's reach."""
    return await call.ol.store.arun(selected, selection.selected_ids, call.reach)


async def known_names(call: RequestContext) -> dict[str, list[str]]:
    """Names of queues, tasks and tenants to suggest in the fields."""
    counted = await call.service.job_counts.snapshot()
    kinds: list[object] = list(counted.of(call.reach))
    return {
        name: sorted({getattr(kind, name) for kind in kinds})[:MAX_SUGGESTIONS]
        for name in ("queue", "task", "tenant")
    }
