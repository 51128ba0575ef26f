"""The service inside somebody else's app."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from outlast import Outlast
from outlast.service import service
from tests.service.serving import running

pytestmark = pytest.mark.kinds("sqlite")


def test_it_is_mounted_under_a_prefix_in_fastapi(ol: Outlast) -> None:
    """With its lifespan run by the app: the background parts start and stop with it."""
    jobs = service(ol)
    app = FastAPI(lifespan=jobs.lifespan)
    app.mount("/jobs", jobs)

    @app.get("/own")
    def own() -> str:
        return "mine"

    with running(app) as url, httpx.Client(base_url=url, trust_env=False) as web:
        assert web.get("/own").json() == "mine"
        made = web.post("/jobs/api/v1/jobs", json={"task": "t"})
        assert made.status_code == 201
        assert web.get(f"/jobs/api/v1/jobs/{made.json()['id']}").json() == made.json()
        assert web.get("/jobs/api/v1/openapi.json").json()["servers"] == [{"url": "/jobs"}]
        assert jobs.service.running
    assert not jobs.service.running


def test_where_no_lifespan_reaches_it_the_first_request_starts_it(ol: Outlast) -> None:
    jobs = service(ol)

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        yield
        await jobs.service.stop()  # tidy, not needed: see the one in Django's way

    app = Starlette(routes=[Mount("/deep/down", jobs)], lifespan=lifespan)
    with running(app) as url:
        assert not jobs.service.running
        answer = httpx.get(f"{url}/deep/down/api/v1/whoami", trust_env=False)
        assert answer.status_code == 200 and jobs.service.running


def test_it_stands_beside_django(ol: Outlast) -> None:
    """Django's ASGI app knows no mounts: the usual dispatcher on the path does it, and nobody tells
    the service when it starts or stops."""
    jobs = service(ol)

    async def django(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"django"})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/jobs/"):
            await jobs({**scope, "root_path": "/jobs"}, receive, send)
        elif scope["type"] == "http":
            await django(scope, receive, send)

    with running(app) as url, httpx.Client(base_url=url, trust_env=False) as web:
        assert web.get("/").text == "django"
        assert web.get("/jobs/api/v1/whoami").status_code == 200
