"""Bulk changes to matching jobs that have not started: another time, priority, queue or lane.

They are counted, confirmed and done in steps, like the other bulk actions; see bulk.py.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from ...client.verb_arguments import ANY_QUEUE
from ...model.errors import InvalidOption
from ...model.humanize import duration_seconds
from ...model.job import Job
from ...model.job_change import JobChange
from ...model.options import seconds
from ...ops.bulk import change_some
from ..api.job_actions import check_move, notify_workers
from ..request import RequestContext
from .bulk import BulkAction, BulkStep, BulkTally, bulk_routes
from .confirm import FormField


async def _resolve_time(call: RequestContext, step: BulkStep) -> BulkStep:
    """Resolve the start time once, so that all steps of an action set the same time."""
    delay = seconds("when", duration_seconds(step.when.strip()))
    if delay is None:
        _moment(step.when)
        return step
    at = datetime.fromtimestamp(await call.service.principals.now() + delay, UTC)
    return step.model_copy(update={"when": at.isoformat()})


def _moment(text: str) -> datetime:
    at = None
    with suppress(ValueError):
        at = datetime.fromisoformat(text.strip())
    if at is None or at.tzinfo is None:
        raise InvalidOption(
            option="when",
            reason="must be a span such as 30m, 2h or 1d, or a time such as 2030-01-31T12:00:00Z,"
            f" not {text!r:.80}",
        )
    return at


def _rescheduling(step: BulkStep) -> JobChange:
    return JobChange.reschedule(None, _moment(step.when))


def _prioritizing(step: BulkStep) -> JobChange:
    try:
        priority = int(step.priority)
    except ValueError:
        reason = f"must be a whole number, not {step.priority!r:.80}"
        raise InvalidOption(option="priority", reason=reason) from None
    return JobChange.prioritize(priority)


def _destination(step: BulkStep) -> tuple[str | None, str | None]:
    """The queue and the lane to move to."""
    return step.to.strip() or None, step.lane.strip() or None


def _moving(step: BulkStep) -> JobChange:
    return JobChange.move(*_destination(step))


async def _check_priority(_: RequestContext, step: BulkStep) -> BulkStep:
    _prioritizing(step)
    return step


async def _check_move(call: RequestContext, step: BulkStep) -> BulkStep:
    change = _moving(step)
    change.check_source(step.queue or None)
    await check_move(call, step.queue, *_destination(step))
    return step


async def _change(
    call: RequestContext, change: JobChange, jobs: list[Job], tally: BulkTally
) -> None:
    if not jobs:
        return
    arguments = [job.id for job in jobs], str(jobs[0].state), change, call.by, call.reach
    some = await call.ol.store.arun(change_some, *arguments)
    tally.add(some)
    if some:
        await notify_workers(call, ANY_QUEUE)


async def _reschedule(
    call: RequestContext, step: BulkStep, jobs: list[Job], tally: BulkTally
) -> None:
    await _change(call, _rescheduling(step), jobs, tally)


async def _prioritize(
    call: RequestContext, step: BulkStep, jobs: list[Job], tally: BulkTally
) -> None:
    await _change(call, _prioritizing(step), jobs, tally)


async def _move(call: RequestContext, step: BulkStep, jobs: list[Job], tally: BulkTally) -> None:
    await _change(call, _moving(step), jobs, tally)


RESCHEDULE = BulkAction(
    "reschedule", "Rescheduled",
    "The jobs start at the given time, and not before. Jobs that run meanwhile are left alone.",
    "Only scheduled and ready jobs can be rescheduled: choose one of these states.",
    _reschedule, danger=False, prepare=_resolve_time,
    fields=(
        FormField(
            "when", "Start", hint="After a span: 0, 30m, 2h, 1d; or at a time:"
            " 2030-01-31T12:00:00Z.",
        ),
    ),
)  # fmt: skip
PRIORITIZE = BulkAction(
    "prioritize", "Prioritized",
    "Jobs of a higher priority start first. Jobs that run meanwhile are left alone.",
    "Only jobs that have not started can be prioritized.",
    _prioritize, danger=False, prepare=_check_priority,
    fields=(FormField("priority", "Priority", hint="A whole number from -100 to 100."),),
)  # fmt: skip
MOVE = BulkAction(
    "move", "Moved",
    "The jobs wait in the other queue, or in the other lane of their queue. Jobs whose keys are"
    " taken in the other queue stay, and so do jobs that are unique in theirs.",
    "Only jobs of one queue that have not started can be moved: choose a queue.",
    _move, danger=False, prepare=_check_move,
    fields=(
        FormField("to", "To the queue"),
        FormField("lane", "Or to the lane", hint="Of the same queue, if it has limits."),
    ),
)  # fmt: skip


ROUTES = (*bulk_routes(RESCHEDULE), *bulk_routes(PRIORITIZE), *bulk_routes(MOVE))
