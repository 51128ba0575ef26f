"""Seeing jobs: one, a page of them, how one came to be where it is."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from ...model.job import Job
from ...model.tokens import Scope
from ...ops import report
from ...ops.explain import explain
from ...ops.reach import Reach
from ...ops.search import Sought, search
from ...ops.statement import Op
from ..calls import Call
from ..census import by_state
from ..route import Route
from . import PREFIX
from .asked import HistoryQuery, PageQuery
from .asked import SearchQuery as Search
from .naming import id_in, limit_of, sought_in
from .views import Counts, Explanation, History, JobPage, JobView

SEARCH_FOR = 0.05  # seconds; then the caller is told where to go on


async def read_job(call: Call) -> dict[str, Any]:
    found = await call.ol.store.arun(report.job, id_in(call), call.reach)
    return found.as_json()


async def list_jobs(call: Call) -> dict[str, Any]:
    asked: PageQuery = call.query
    limit = limit_of(asked.limit, 50, call.service.settings.max_page)
    cursor = None if asked.cursor is None else str(asked.cursor)
    found, cursor = await look(call, sought_in(asked), call.reach, cursor, limit)
    return {"jobs": [line(job) for job in found], "next": cursor}


async def look(
    call: Call, sought: Sought, reach: Reach, cursor: str | None, limit: int
) -> tuple[list[Job], str | None]:
    """A page of what fits, as much of it as is found in a moment; and where to go on."""
    found: list[Job] = []
    until = time.monotonic() + SEARCH_FOR
    while True:
        left = limit - len(found)
        page, cursor = await call.ol.store.arun(search, sought, reach, cursor, left)
        found += page
        if cursor is None or len(found) >= limit or time.monotonic() > until:
            return found, cursor


def line(job: Job) -> dict[str, Any]:
    """A job as lists have it."""
    said = job.as_json()
    del said["args"], said["result"]
    if isinstance(said["error"], dict):
        said["error"] = {k: v for k, v in said["error"].items() if k != "traceback"}
    return said


async def count_jobs(call: Call) -> dict[str, Any]:
    counted = await call.service.census.counted()
    counts = by_state(counted.of(call.reach, sought_in(call.query)))
    return {"counts": counts, "total": sum(counts.values()), "age": counted.age}


async def explain_job(call: Call) -> dict[str, Any]:
    id = id_in(call)
    store = call.ol.store
    job = await store.arun(report.job, id, call.reach)
    words = await store.arun(explain, id, store.confirm_dead, call.reach)
    return {"job": id, "state": job.state, "explanation": words}


async def read_history(call: Call) -> dict[str, Any]:
    asked: HistoryQuery = call.query
    limit = limit_of(asked.limit, 200, call.service.settings.max_page)
    attempts, events = await call.ol.store.arun(
        _history, id_in(call), call.reach, asked.after, limit
    )
    return {
        "attempts": [plain(asdict(one)) for one in attempts],
        "events": [plain(asdict(one)) for one in events],
        "next": events[-1].seq if len(events) == limit else None,
    }


def _history(id: str, reach: Any, after: int, limit: int) -> Op[Any]:
    yield from report.job(id, reach)  # what is out of reach has no history either
    return (yield from report.history(id, after, limit))


def plain(facts: dict[str, Any]) -> dict[str, Any]:
    moments = ("started_at", "finished_at", "at", "seen_at", "next_at", "succeeded_at")
    return {
        name: value.isoformat() if name in moments and value is not None else value
        for name, value in facts.items()
    }


ROUTES = (
    Route(
        "GET", f"{PREFIX}/jobs", Scope.READ, list_jobs, "A page of jobs, newest first",
        query=PageQuery, response=JobPage,
    ),
    Route(
        "GET", f"{PREFIX}/counts", Scope.READ, count_jobs, "How many jobs there are in each state",
        query=Search, response=Counts,
    ),
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}", Scope.READ, read_job, "One job",
        response=JobView, statuses=(404,),
    ),
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/explain", Scope.READ, explain_job,
        "Why a job stands where it stands", response=Explanation, statuses=(404,),
    ),
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/history", Scope.READ, read_history,
        "A job's failed attempts, and a page of its events",
        query=HistoryQuery, response=History, statuses=(404,),
    ),
)  # fmt: skip
