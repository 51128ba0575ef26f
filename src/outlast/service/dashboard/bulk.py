"""Actions on all jobs that fit a filter: counted first, asked once, then done in small steps.

    GET  /jobs/cancel?queue=mail     how many, and whether to go on
    POST /jobs/cancel                as many as can be done in a second, then a page that says how
                                     far it came, with a form that goes on from there

What is still to do travels in that form, so nothing is lost when the server goes away, and who
closes the page has stopped it. A script sends the form by itself; without one, a button does.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from ...connected import ANYWHERE
from ...model.errors import JobNotFound, TooLate
from ...model.ids import new_job_id
from ...model.job import Job
from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import operate
from ...ops.enqueue import CANCEL_SIGNAL
from ...ops.purge import purge
from ...ops.search import search
from ..api.steering import tell
from ..calls import Call
from .acting import done, form, refused
from .pages import acts, page, seen
from .wanted import Said, Wanted, number_of, reach_of, states_for

STEP = 1.0  # seconds that one request works
FEW = 100  # jobs in one go


class Step(Wanted):
    """A filter, and how far its action came."""

    reason: Said = ""
    number: int = Field(0, ge=0)  # that were counted at first
    cursor: UUID | None = None  # in the first of the states that are left
    passed: int = Field(0, ge=0, le=10)  # states that are done with
    done: int = Field(0, ge=0)
    missed: int = Field(0, ge=0)


@dataclass(slots=True)
class Tally:
    done: int
    missed: int


@dataclass(frozen=True, slots=True)
class Action:
    """What is done to many: in words, and to some of them."""

    name: str
    did: str
    consequence: str
    none: str  # why there may be nothing to do
    left: str  # why some were left alone
    act: Callable[[Call, Step, list[Job], Tally], Awaitable[None]]
    danger: bool = True

    @property
    def verb(self) -> str:
        return self.name.capitalize()


async def _ask(call: Call, action: Action) -> Response:
    wanted: Wanted = call.query
    counted = await number_of(call, wanted, states_for(action.name, wanted))
    return await page(call, "bulk_question.html", action=action, wanted=wanted, counted=counted)


async def _step(call: Call, action: Action) -> Response:
    asked = await form(call, Step)
    states = states_for(action.name, asked)[asked.passed :]
    tally = Tally(asked.done, asked.missed)
    cursor = None if asked.cursor is None else str(asked.cursor)
    until, passed = time.monotonic() + STEP, asked.passed
    for state in states:
        while True:
            sought = replace(asked.sought, state=str(state))
            found, cursor = await call.ol.store.arun(
                search, sought, reach_of(call, asked), cursor, FEW
            )
            await action.act(call, asked, found, tally)
            if cursor is None:
                break
            if time.monotonic() > until:
                return await _go_on(call, action, _at(asked, tally, cursor, passed))
        passed += 1
    return await _over(call, action, asked, tally)


def _at(asked: Step, tally: Tally, cursor: str, passed: int) -> Step:
    so_far = {"done": tally.done, "missed": tally.missed, "passed": passed}
    return asked.model_copy(update=so_far | {"cursor": UUID(cursor)})


async def _go_on(call: Call, action: Action, step: Step) -> Response:
    fields = {name: str(value) for name, value in step.model_dump(exclude_none=True).items()}
    return await page(call, "bulk.html", action=action, step=step, wanted=step, fields=fields)


async def _over(call: Call, action: Action, asked: Step, tally: Tally) -> Response:
    jobs = "1 job" if tally.done == 1 else f"{tally.done:,} jobs"
    said = f"{action.did} {jobs}."
    if tally.missed:
        said += f" {tally.missed:,} {action.left}, and were left alone."
    tell_it = done if tally.done or not tally.missed else refused
    return await tell_it(call, said, "/jobs", **asked.query)


async def _cancel(call: Call, asked: Step, jobs: list[Job], tally: Tally) -> None:
    stopping = False
    for job in jobs:
        try:
            ended = await call.ol.store.arun(
                operate.cancel, job.id, call.by, asked.reason, call.reach
            )
        except (TooLate, JobNotFound):  # it ended meanwhile, and may have been pruned
            tally.missed += 1
            continue
        tally.done += 1
        stopping |= ended.state is State.RUNNING
    if stopping:
        await tell(call, CANCEL_SIGNAL)


async def _redrive(call: Call, asked: Step, jobs: list[Job], tally: Tally) -> None:
    if not jobs:
        return
    ids = {job.id for job in jobs}
    revived = set(
        await call.ol.store.arun(
            operate.redrive, sorted(ids), call.by, new_job_id(), reach=call.reach
        )
    )
    tally.done += len(revived)
    tally.missed += len(ids - revived)
    if revived:
        await tell(call, ANYWHERE)


async def _purge(call: Call, asked: Step, jobs: list[Job], tally: Tally) -> None:
    ids = [job.id for job in jobs]
    gone = await call.ol.store.arun(purge, ids, 0.0, call.by, asked.query, call.reach)
    tally.done += gone
    tally.missed += len(ids) - gone


CANCEL = Action(
    "cancel", "Cancelled",
    "Those that wait are cancelled at once; those that run are asked to stop. Whoever waits for one"
    " of them learns that it was cancelled.",
    "All that fit have ended.", "had changed meanwhile", _cancel,
)  # fmt: skip
REDRIVE = Action(
    "redrive", "Gave a new life to",
    "Each starts over with all its attempts, and so do those that are dead because of it.",
    "Only what is dead or cancelled can be redriven.",
    "had changed meanwhile, or cannot run", _redrive, danger=False,
)  # fmt: skip
PURGE = Action(
    "purge", "Removed",
    "They are removed for good, with their arguments, results and history, and nobody can redrive"
    " them. What a flow still needs stays.",
    "Only what succeeded, is dead or was cancelled can be removed: choose one of these states.",
    "had changed meanwhile, or are needed by a flow", _purge,
)  # fmt: skip


async def ask_cancel_jobs(call: Call) -> Response:
    return await _ask(call, CANCEL)


async def ask_redrive_jobs(call: Call) -> Response:
    return await _ask(call, REDRIVE)


async def ask_purge_jobs(call: Call) -> Response:
    return await _ask(call, PURGE)


async def do_cancel_jobs(call: Call) -> Response:
    return await _step(call, CANCEL)


async def do_redrive_jobs(call: Call) -> Response:
    return await _step(call, REDRIVE)


async def do_purge_jobs(call: Call) -> Response:
    return await _step(call, PURGE)


ROUTES = (
    seen("/jobs/cancel", ask_cancel_jobs, "Cancel all that fit?", query=Wanted, scope=Scope.ADMIN),
    seen("/jobs/redrive", ask_redrive_jobs, "Redrive all that fit?", query=Wanted,
         scope=Scope.ADMIN),
    seen("/jobs/purge", ask_purge_jobs, "Remove all that fit?", query=Wanted, scope=Scope.ADMIN),
    acts("/jobs/cancel", do_cancel_jobs, "Cancel all that fit, some at a time"),
    acts("/jobs/redrive", do_redrive_jobs, "Redrive all that fit, some at a time"),
    acts("/jobs/purge", do_purge_jobs, "Remove all that fit, some at a time"),
)  # fmt: skip
