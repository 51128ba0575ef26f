"""A web app with its worker inside: the lifespan starts it, and drains it.

    uvicorn fastapi_app:app
    curl -X POST 'localhost:8000/reports?month=2026-11'
    curl -N localhost:8000/reports/JOB/events

Kill it with `kill -9` while a report is running, and start it again: the report is completed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response

from outlast import Context, JobNotFound, Outlast
from outlast.integrations.fastapi import JobEvents, lifespan

ol = Outlast("sqlite:///reports.db")
events = JobEvents(ol)
app = FastAPI(lifespan=lifespan(ol, events=events, concurrency=8, grace=10))


@ol.task(timeout=300)
async def report(month: str, ctx: Context, days: int = 30) -> dict[str, Any]:
    for day in range(1, days + 1):
        ctx.progress(day, days)
        await asyncio.sleep(0.02)
    return {"month": month, "days": days, "attempt": ctx.attempt}


@app.post("/reports", status_code=202)
async def start(month: str, days: int = 30) -> dict[str, str]:
    """Start a report. A repeated request returns the same job while its row exists."""
    job = await report.using(key=f"{month}-{days}").aenqueue(month, days=days)
    return {"job": job.id}


@app.get("/reports/{id}")
async def show(id: str) -> dict[str, Any]:
    try:
        job = await ol.ajob(id)
    except JobNotFound as error:
        raise HTTPException(404, str(error)) from None
    return {"state": job.state, "result": job.result}


@app.get("/reports/{id}/events")
async def follow(id: str, request: Request) -> Response:
    """Server-sent events, for `new EventSource(…)`: progress, and the end."""
    return await events.job(request, id)
