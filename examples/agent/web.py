"""The page that shows an agent at work, beside Outlast's own service, which streams the tokens and
answers the approval links. Only callers on this machine are served until a token exists.

    uvicorn web:app --port 8901
"""

from __future__ import annotations

from pathlib import Path

from agent import ol
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Mount, Route

from outlast.service import service

PAGE = Path(__file__).parent / "page.html"
jobs = service(ol)


async def page(request: Request) -> FileResponse:
    """The same for every agent: its script reads the job's id from the address."""
    return FileResponse(PAGE)


app = Starlette(
    routes=[Route("/agents/{id}", page), Mount("/", app=jobs)],
    lifespan=jobs.lifespan,
)
