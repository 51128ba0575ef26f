"""The service inside somebody else's app."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from outlast import Outlast
from outlast.model.api_token import new_token
from outlast.ops import tokens
from outlast.service import service
from tests.service.serving import running
from tests.store.django_connection import configure as configure_django
from tests.support import eventually

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


def test_two_of_them_in_one_app_have_sessions_of_their_own(ol: Outlast, tmp_path: Path) -> None:
    """A browser has one cookie for each: neither login ends the other."""
    with Outlast(f"sqlite:///{tmp_path}/other.db") as other:
        other.migrate()
        mounts, secrets = [], dict[str, str]()
        for name, one in {"one": ol, "other": other}.items():
            secrets[name], new = new_token("test", ("read",))
            one.store.run(tokens.create, new, "test")
            mounts.append(Mount(f"/{name}", service(one)))
        with (
            running(Starlette(routes=mounts)) as url,
            httpx.Client(base_url=url, trust_env=False, headers={"origin": url}) as web,
        ):
            for name, secret in secrets.items():
                assert web.post(f"/{name}/login", json={"token": secret}).status_code == 204
            for name in secrets:
                assert web.get(f"/{name}/api/v1/whoami").status_code == 200
            assert web.post("/one/logout").status_code == 204
            seen = [web.get(f"/{name}/api/v1/whoami").status_code for name in secrets]
            assert seen == [401, 200]


def test_it_stands_beside_django(ol: Outlast) -> None:
    """Django's ASGI app knows no mounts and no lifespan: a dispatcher on the path does it, and the
    lifespan of the server is the service's. Django has the rest."""
    from django.core.asgi import get_asgi_application
    from django.test.utils import override_settings
    from django.urls import path

    configure_django()
    jobs = service(ol)

    class urls:
        urlpatterns = (path("own/<int:number>", _of_django),)

    with override_settings(ROOT_URLCONF=urls, ALLOWED_HOSTS=["127.0.0.1"]):
        django = get_asgi_application()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan" or scope["path"].startswith("/jobs/"):
                await jobs({**scope, "root_path": "/jobs"}, receive, send)
            else:
                await django(scope, receive, send)

        with running(application) as url, httpx.Client(base_url=url, trust_env=False) as web:
            assert jobs.service.running, "before the first request"
            assert web.get("/own/7").text == "django has 7"
            assert web.get("/jobsite").status_code == 404, "which is Django's to say"
            made = web.post("/jobs/api/v1/jobs", json={"task": "t"})
            assert made.status_code == 201
            assert web.get(f"/jobs/api/v1/jobs/{made.json()['id']}").json() == made.json()
            assert web.get("/jobs/api/v1/openapi.json").json()["servers"] == [{"url": "/jobs"}]
            page = web.get("/jobs/", headers={"accept": "text/html"})
            assert page.status_code == 200 and 'href="/jobs/' in page.text
        assert not jobs.service.running


def _of_django(request: Any, number: int) -> Any:
    from django.http import HttpResponse

    return HttpResponse(f"django has {number}")


def test_where_nobody_tells_it_that_the_server_stops_nothing_is_left(ol: Outlast) -> None:
    """Its parts end with the event loop, without a word in the log."""
    jobs = service(ol)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await jobs(scope, receive, send)

    with running(app) as url:
        assert httpx.get(f"{url}/api/v1/whoami", trust_env=False).status_code == 200
        tasks = list(jobs.service._tasks)
    assert tasks and all(task.done() for task in tasks)


def test_streams_end_when_who_mounted_it_says_that_it_stops(ol: Outlast) -> None:
    """Else another server would wait for them."""
    jobs = service(ol)
    app = Starlette(routes=[Mount("/jobs", jobs)], lifespan=jobs.lifespan)
    with (
        running(app) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=20) as web,
        web.stream("GET", "/jobs/api/v1/events") as stream,
    ):
        assert stream.status_code == 200
        eventually(lambda: jobs.service.broadcaster.subscribers == 1)
        jobs.service._tasks[0].get_loop().call_soon_threadsafe(jobs.service.close_streams)
        for _ in stream.iter_raw():  # until it ends: a stream lasts an hour
            pass
    assert jobs.service.broadcaster.subscribers == 0
