"""The page of one job: what it is, how it came to stand where it stands, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from ...model.job import Job
from ...ops import events, report
from ...ops.browse import near
from ...ops.explain import explain
from ...ops.statement import Op
from ..api import PREFIX
from ..api.asked import Incoming
from ..api.naming import id_in
from ..calls import Call
from . import job_actions
from .pages import page, seen
from .timeline import timeline, tries
from .told import shortened, told_as

EVENTS = 100  # on one page
NEIGHBOURS = 20
LIVE_KINDS = "progress log attempt cancel redrive forget state end cut message".split()


class JobQuery(Incoming):
    after: int = Field(0, ge=0, lt=10**18)  # events after this one
    all: Literal["", "args", "result", "error"] = ""  # shown in full


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the page says, read at one time."""

    job: Job
    attempts: list[report.Attempt]
    steps: list[report.Step]
    before: list[Any]
    after: list[Any]


async def job_page(call: Call) -> Response:
    asked: JobQuery = call.query
    id, store = id_in(call), call.ol.store
    seen = await store.arun(_seen, id, call)
    why = await store.arun(explain, id, store.confirm_dead, call.reach)
    told = await store.arun(events.page_of_job, id, asked.after, seen.job.tenant, EVENTS)
    # What was said a moment ago has no place yet; who follows is told it once it has.
    lately = (
        [] if told.more else await store.arun(events.unplaced_of_job, id, seen.job.tenant, EVENTS)
    )
    now = await call.service.principals.now()
    known = tries(seen.job, seen.attempts, now)
    return await page(
        call, "job.html", job=seen.job, seen=seen, why=why, tries=known,
        timeline=timeline(seen.job, known, now),
        events=[told_as(one) for one in told.told + lately], more=told.reach if told.more else None,
        reached=told.reach, after=asked.after, live=_live(seen.job, told.more),
        texts=_texts(seen.job, asked.all), stream=f"{PREFIX}/jobs/{id}/events", kinds=LIVE_KINDS,
    )  # fmt: skip


def _live(job: Job, more: bool) -> bool:
    """The last page of a job that has not ended goes on by itself."""
    return not job.final and not more


def _texts(job: Job, whole: str) -> dict[str, Any]:
    shown = job.as_json()
    said = {"args": shown["args"], "result": shown["result"],
            "error": (job.error or {}).get("traceback")
            if isinstance(job.error, dict) else job.error}  # fmt: skip
    return {name: shortened(value, whole == name) for name, value in said.items()}


def _seen(id: str, call: Call) -> Op[Seen]:
    job = yield from report.job(id, call.reach)
    attempts, _ = yield from report.history(id, limit=1)
    steps = yield from report.steps(id)
    before, after = yield from near(id, call.reach, NEIGHBOURS)
    return Seen(job, attempts, steps, before, after)


ROUTES = (seen("/jobs/{id}", job_page, "One job", query=JobQuery), *job_actions.ROUTES)
