"""Bulk actions on all jobs that match a filter: counted, confirmed, then done in small steps.

    GET  /jobs/cancel?queue=mail     the number of jobs, and the confirmation
    GET  /jobs/cancel?ids=…&ids=…    the same for jobs that were selected one by one
    POST /jobs/cancel                as many as fit into a second, then a page with the progress
                                     and a form that continues from there

The form carries the remaining work, so a server restart loses nothing, and closing the page stops
the action. A script submits the form; without one, a button does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from ...client.verb_arguments import ANY_QUEUE
from ...model.api_token import Scope
from ...model.bulk_count import REMOVED, BulkCount, explain_difference, pack_reasons, unpack_reasons
from ...model.errors import InvalidOption, JobNotFound, TooLate
from ...model.ids import new_job_id
from ...model.job import Job
from ...model.lifecycle import State
from ...ops import job_actions
from ...ops.bulk import purge_some, redrive_some
from ...ops.enqueue import CANCEL_SIGNAL
from ...ops.search import search
from ...store.blobs.store import adelete_blobs
from ..api.job_actions import notify_workers
from ..request import RequestContext
from ..route import Route
from .confirm import FormField, redirect_done, redirect_refused, submitted_form
from .filters import (
    FilterText,
    Selection,
    access_of,
    action_states,
    count_matching,
    selected_jobs,
)
from .pages import action_route, page_route, render_page

STEP_BUDGET_S = 1.0  # of work per request
BATCH_SIZE = 100  # jobs per batch


class BulkStep(Selection):
    """A filter or a selection, and the progress of its action."""

    reason: FilterText = ""
    when: FilterText = ""  # to reschedule: a span or a time
    priority: FilterText = ""
    to: FilterText = ""  # a queue
    lane: FilterText = ""
    number: int = Field(0, ge=0)  # counted before the start
    cursor: UUID | None = None  # in the first of the remaining states
    passed: int = Field(0, ge=0, le=10)  # states that are done
    exact: bool = True  # whether `number` is
    done: int = Field(0, ge=0)
    more: int = Field(0, ge=0)  # of these, jobs that had not matched
    left: Annotated[str, Field(max_length=1000)] = ""  # skipped jobs by reason

    @property
    def missed(self) -> int:
        return sum(unpack_reasons(self.left).values())


@dataclass(slots=True)
class BulkTally:
    done: int
    more: int
    left: Counter[str]

    def add(self, some: BulkCount) -> None:
        self.done += some
        self.more += some.more
        self.left += Counter(some.left)


@dataclass(frozen=True, slots=True)
class BulkAction:
    """A bulk action: its texts, and its function for one batch."""

    name: str
    did: str
    consequence: str
    none: str  # why there may be no jobs to act on
    act: Callable[[RequestContext, BulkStep, list[Job], BulkTally], Awaitable[None]]
    danger: bool = True
    fields: tuple[FormField, ...] = ()  # of the confirmation form
    # Checks these fields and resolves them, before the first batch of a step.
    prepare: Callable[[RequestContext, BulkStep], Awaitable[BulkStep]] | None = None

    @property
    def verb(self) -> str:
        return self.name.capitalize()


async def ask_bulk(call: RequestContext, action: BulkAction) -> Response:
    """The confirmation page, with the number of jobs."""
    wanted: Selection = call.query
    states = action_states(action.name, wanted)
    counted = await count_matching(call, wanted, states)
    chosen = await selected_jobs(call, wanted) if wanted.is_selection else []
    return await render_page(
        call, "bulk_question.html", action=action, wanted=wanted, counted=counted,
        selected=[job for job in chosen if job.state in states],
        left=len(wanted.selected_ids) - counted.number if wanted.is_selection else 0,
    )  # fmt: skip


async def do_bulk(call: RequestContext, action: BulkAction) -> Response:
    """Run one step of the action: the batches that fit into its time."""
    step = await submitted_form(call, BulkStep)
    if action.prepare is not None:
        try:
            step = await action.prepare(call, step)
        except InvalidOption as error:
            return await redirect_refused(call, f"No change. {error}", "/jobs", **step.query)
    if step.is_selection:
        return await _do_selected(call, action, step)
    states = action_states(action.name, step)[step.passed :]
    tally = BulkTally(step.done, step.more, unpack_reasons(step.left))
    cursor = None if step.cursor is None else str(step.cursor)
    deadline, passed = time.monotonic() + STEP_BUDGET_S, step.passed
    for state in states:
        while True:
            sought = replace(step.job_query, state=str(state))
            found, cursor = await call.ol.store.arun(
                search, sought, access_of(call, step), cursor, BATCH_SIZE
            )
            await action.act(call, step, found, tally)
            if cursor is None:
                break
            if time.monotonic() > deadline:
                return await _continue(call, action, _next_step(step, tally, cursor, passed))
        passed += 1
    return await _finish(call, action, step, tally)


async def _do_selected(call: RequestContext, action: BulkAction, step: BulkStep) -> Response:
    """Run the action on selected jobs: they are few, so one step suffices."""
    found = await selected_jobs(call, step)
    tally = BulkTally(0, 0, Counter({REMOVED: len(step.selected_ids) - len(found)}))
    states = action_states(action.name, step)
    tally.left.update(str(job.state) for job in found if job.state not in states)
    for state in states:
        await action.act(call, step, [job for job in found if job.state == state], tally)
    tally.left = +tally.left
    number = len(step.selected_ids)
    return await _finish(call, action, step.model_copy(update={"number": number}), tally)


def _next_step(step: BulkStep, tally: BulkTally, cursor: str, passed: int) -> BulkStep:
    so_far = {
        "done": tally.done,
        "more": tally.more,
        "left": pack_reasons(tally.left),
        "passed": passed,
    }
    return step.model_copy(update=so_far | {"cursor": UUID(cursor)})


async def _continue(call: RequestContext, action: BulkAction, step: BulkStep) -> Response:
    # A selection is done in one step.
    progress = step.model_dump(exclude_none=True, exclude={"ids", "chosen"})
    fields = {name: str(value) for name, value in progress.items()}
    return await render_page(
        call, "bulk.html", action=action, step=step, wanted=step, fields=fields
    )


async def _finish(
    call: RequestContext, action: BulkAction, step: BulkStep, tally: BulkTally
) -> Response:
    jobs = "1 job" if tally.done == 1 else f"{tally.done:,} jobs"
    left = sum(tally.left.values())
    announced = step.number if step.exact and step.number else tally.done - tally.more + left
    why = explain_difference(announced, BulkCount.of(tally.done, tally.left, tally.more))
    message = " ".join(filter(None, (f"{action.did} {jobs}.", why)))
    tell_it = redirect_done if tally.done or not left else redirect_refused
    return await tell_it(call, message, "/jobs", **step.query)


def bulk_routes(action: BulkAction) -> tuple[Route, Route]:
    """The routes of a bulk action: its confirmation page, and its steps."""

    async def ask(call: RequestContext) -> Response:
        return await ask_bulk(call, action)

    async def do(call: RequestContext) -> Response:
        return await do_bulk(call, action)

    ask.__name__, do.__name__ = f"ask_{action.name}_jobs", f"do_{action.name}_jobs"
    path, all_jobs = f"/jobs/{action.name}", f"{action.verb} all matching jobs"
    return (
        page_route(path, ask, f"{all_jobs}?", query=Selection, scope=Scope.ADMIN),
        action_route(path, do, f"{all_jobs}, in steps"),
    )


async def _cancel(call: RequestContext, step: BulkStep, jobs: list[Job], tally: BulkTally) -> None:
    stopping = False
    for job in jobs:
        try:
            ended = await call.ol.store.arun(
                job_actions.cancel, job.id, call.by, step.reason, call.reach
            )
        except TooLate as error:  # it has ended in the meantime
            tally.left[str(error.facts["state"])] += 1
            continue
        except JobNotFound:
            tally.left[REMOVED] += 1
            continue
        tally.done += 1
        stopping |= ended.state is State.RUNNING
    if stopping:
        await notify_workers(call, CANCEL_SIGNAL)


async def _redrive(call: RequestContext, step: BulkStep, jobs: list[Job], tally: BulkTally) -> None:
    if not jobs:
        return
    arguments = [job.id for job in jobs], str(jobs[0].state), call.by, new_job_id(), call.reach
    revived, some = await call.ol.store.arun(redrive_some, *arguments)
    tally.add(some)
    if revived:
        await notify_workers(call, ANY_QUEUE)


async def _purge(call: RequestContext, step: BulkStep, jobs: list[Job], tally: BulkTally) -> None:
    if not jobs:
        return
    arguments = [job.id for job in jobs], str(jobs[0].state), 0.0, call.by, step.query, call.reach
    gone, some = await call.ol.store.arun(purge_some, *arguments)
    await adelete_blobs(call.ol.blobs, gone.blobs)
    tally.add(some)


CANCEL = BulkAction(
    "cancel", "Cancelled",
    "Queued jobs are cancelled at once; running jobs are asked to stop. Jobs that wait for one of"
    " them are notified.",
    "All matching jobs have ended.", _cancel,
    fields=(FormField("reason", "Reason, stored with each job"),),
)  # fmt: skip
REDRIVE = BulkAction(
    "redrive", "Redrove",
    "Each job starts over with all its attempts, and so do jobs that are dead because of it.",
    "Only dead and cancelled jobs can be redriven.",
    _redrive, danger=False,
)  # fmt: skip
PURGE = BulkAction(
    "purge", "Removed",
    "The jobs are removed permanently, with their arguments, results and history, and cannot be"
    " redriven. Jobs that a flow still needs stay.",
    "Only succeeded, dead and cancelled jobs can be removed: choose one of these states.",
    _purge,
)  # fmt: skip


ROUTES = (*bulk_routes(CANCEL), *bulk_routes(REDRIVE), *bulk_routes(PURGE))
