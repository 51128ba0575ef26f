"""Actions on all jobs that fit a filter: counted first, asked once, then done in small steps.

    GET  /jobs/cancel?queue=mail     how many, and whether to go on
    POST /jobs/cancel                as many as can be done in a second, then a page that says how
                                     far it came, with a form that goes on from there

What is still to do travels in that form, so nothing is lost when the server goes away, and who
closes the page has stopped it. A script sends the form by itself; without one, a button does.
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

from ...connected import ANYWHERE
from ...model.bulk import REMOVED, BulkCount, explained, packed, unpacked
from ...model.errors import JobNotFound, TooLate
from ...model.ids import new_job_id
from ...model.job import Job
from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import operate
from ...ops.bulk import purge_some, redrive_some
from ...ops.enqueue import CANCEL_SIGNAL
from ...ops.search import search
from ...store.blobs import aclear
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
    exact: bool = True  # whether that number was
    done: int = Field(0, ge=0)
    more: int = Field(0, ge=0)  # of these, that had not matched
    left: Annotated[str, Field(max_length=1000)] = ""  # that were left alone, by reason

    @property
    def missed(self) -> int:
        return sum(unpacked(self.left).values())


@dataclass(slots=True)
class Tally:
    done: int
    more: int
    left: Counter[str]

    def add(self, some: BulkCount) -> None:
        self.done += some
        self.more += some.more
        self.left += Counter(some.left)


@dataclass(frozen=True, slots=True)
class Action:
    """What is done to many: in words, and to some of them."""

    name: str
    did: str
    consequence: str
    none: str  # why there may be nothing to do
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
    tally = Tally(asked.done, asked.more, unpacked(asked.left))
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
    so_far = {"done": tally.done, "more": tally.more, "left": packed(tally.left), "passed": passed}
    return asked.model_copy(update=so_far | {"cursor": UUID(cursor)})


async def _go_on(call: Call, action: Action, step: Step) -> Response:
    fields = {name: str(value) for name, value in step.model_dump(exclude_none=True).items()}
    return await page(call, "bulk.html", action=action, step=step, wanted=step, fields=fields)


async def _over(call: Call, action: Action, asked: Step, tally: Tally) -> Response:
    jobs = "1 job" if tally.done == 1 else f"{tally.done:,} jobs"
    left = sum(tally.left.values())
    announced = asked.number if asked.exact and asked.number else tally.done - tally.more + left
    why = explained(announced, BulkCount.of(tally.done, tally.left, tally.more))
    said = " ".join(filter(None, (f"{action.did} {jobs}.", why)))
    tell_it = done if tally.done or not left else refused
    return await tell_it(call, said, "/jobs", **asked.query)


async def _cancel(call: Call, asked: Step, jobs: list[Job], tally: Tally) -> None:
    stopping = False
    for job in jobs:
        try:
            ended = await call.ol.store.arun(
                operate.cancel, job.id, call.by, asked.reason, call.reach
            )
        except TooLate as error:  # it ended meanwhile
            tally.left[str(error.facts["state"])] += 1
            continue
        except JobNotFound:
            tally.left[REMOVED] += 1
            continue
        tally.done += 1
        stopping |= ended.state is State.RUNNING
    if stopping:
        await tell(call, CANCEL_SIGNAL)


async def _redrive(call: Call, asked: Step, jobs: list[Job], tally: Tally) -> None:
    if not jobs:
        return
    given = [job.id for job in jobs], str(jobs[0].state), call.by, new_job_id(), call.reach
    revived, some = await call.ol.store.arun(redrive_some, *given)
    tally.add(some)
    if revived:
        await tell(call, ANYWHERE)


async def _purge(call: Call, asked: Step, jobs: list[Job], tally: Tally) -> None:
    if not jobs:
        return
    given = [job.id for job in jobs], str(jobs[0].state), 0.0, call.by, asked.query, call.reach
    gone, some = await call.ol.store.arun(purge_some, *given)
    await aclear(call.ol.blobs, gone.blobs)
    tally.add(some)


CANCEL = Action(
    "cancel", "Cancelled",
    "Those that wait are cancelled at once; those that run are asked to stop. Whoever waits for one"
    " of them learns that it was cancelled.",
    "All that fit have ended.", _cancel,
)  # fmt: skip
REDRIVE = Action(
    "redrive", "Gave a new life to",
    "Each starts over with all its attempts, and so do those that are dead because of it.",
    "Only what is dead or cancelled can be redriven.",
    _redrive, danger=False,
)  # fmt: skip
PURGE = Action(
    "purge", "Removed",
    "They are removed for good, with their arguments, results and history, and nobody can redrive"
    " them. What a flow still needs stays.",
    "Only what succeeded, is dead or was cancelled can be removed: choose one of these states.",
    _purge,
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
