"""Reading jobs: one, a page of them, counts, explanation and history."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...model.api_token import Scope
from ...model.job import Job
from ...ops import report
from ...ops.access import Access
from ...ops.explain import explain
from ...ops.operation import Op
from ...ops.search import JobQuery, search
from ...ops.wait_report import current_waits
from ..job_counts import by_state
from ..request import RequestContext
from ..route import Route
from . import PREFIX
from .params import filter_of, job_id_of, limit_of
from .request_models import HistoryQuery, PageQuery
from .request_models import SearchQuery as Search
from .response_models import Counts, Explanation, JobHistory, JobPage, JobView

SEARCH_BUDGET_S = 0.05  # then the response has a cursor


async def read_job(call: RequestContext) -> dict[str, object]:
    found = await call.ol.store.arun(report.job, job_id_of(call), call.reach)
    return found.as_json() | (await waiting_of(call, [found])).get(found.id, {})


async def list_jobs(call: RequestContext) -> dict[str, object]:
    params: PageQuery = call.query
    limit = limit_of(params.limit, 50, call.service.settings.max_page)
    cursor = None if params.cursor is None else str(params.cursor)
    found, cursor = await search_page(call, filter_of(params), call.reach, cursor, limit)
    waiting = await waiting_of(call, found)
    return {
        "jobs": [job_summary(job) | waiting.get(job.id, {}) for job in found],
        "next": cursor,
    }


async def waiting_of(call: RequestContext, jobs: Sequence[Job]) -> dict[str, dict[str, object]]:
    """The waits of jobs whose handlers wait, as additional fields by job id."""
    waits = await call.ol.store.arun(current_waits, jobs)
    return {id: {"waiting": wait.as_json()} for id, wait in waits.items()}


async def search_page(
    call: RequestContext, job_filter: JobQuery, reach: Access, cursor: str | None, limit: int
) -> tuple[list[Job], str | None]:
    """A page of the matching jobs that are found in time, and the next cursor."""
    found: list[Job] = []
    deadline = time.monotonic() + SEARCH_BUDGET_S
    while True:
        left = limit - len(found)
        page, cursor = await call.ol.store.arun(search, job_filter, reach, cursor, left)
        found += page
        if cursor is None or len(found) >= limit or time.monotonic() > deadline:
            return found, cursor


def job_summary(job: Job) -> dict[str, object]:
    """A job in lists: without arguments, result and traceback."""
    summary = job.as_json()
    del summary["args"], summary["result"]
    if isinstance(summary["error"], dict):
        summary["error"] = {k: v for k, v in summary["error"].items() if k != "traceback"}
    return summary


async def count_jobs(call: RequestContext) -> dict[str, object]:
    counted = await call.service.job_counts.snapshot()
    counts = by_state(counted.of(call.reach, filter_of(call.query)))
    return {"counts": counts, "total": sum(counts.values()), "age": counted.age}


async def explain_job(call: RequestContext) -> dict[str, object]:
    id = job_id_of(call)
    store = call.ol.store
    job = await store.arun(report.job, id, call.reach)
    explanation = await store.arun(explain, id, store.confirm_dead, call.reach)
    return {"job": id, "state": job.state, "explanation": explanation}


async def read_history(call: RequestContext) -> dict[str, object]:
    params: HistoryQuery = call.query
    limit = limit_of(params.limit, 200, call.service.settings.max_page)
    attempts, events = await call.ol.store.arun(
        _history, job_id_of(call), call.reach, params.after, limit
    )
    return {
        "attempts": [jsonable(asdict(one)) for one in attempts],
        "events": [jsonable(asdict(one)) for one in events],
        "next": events[-1].seq if len(events) == limit else None,
    }


def _history(id: str, reach: Any, after: int, limit: int) -> Op[Any]:
    yield from report.job(id, reach)  # raises if the job is out of reach
    return (yield from report.history_page(id, after, limit))


def jsonable(facts: dict[str, Any]) -> dict[str, object]:
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
        "GET", f"{PREFIX}/counts", Scope.READ, count_jobs, "Number of jobs in each state",
        query=Search, response=Counts,
    ),
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}", Scope.READ, read_job, "One job",
        response=JobView, statuses=(404,),
    ),
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/explain", Scope.READ, explain_job,
        "Why a job is in its state", response=Explanation, statuses=(404,),
    ),
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/history", Scope.READ, read_history,
        "A job's unsuccessful attempts, and a page of its events",
        query=HistoryQuery, response=JobHistory, statuses=(404,),
    ),
)  # fmt: skip
