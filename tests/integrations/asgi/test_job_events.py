"""Events of jobs and flows from an endpoint of one's own app."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from outlast import Context, Outlast, group
from outlast.integrations.fastapi import JobEvents, lifespan
from outlast.model.settings import ServiceSettings
from tests.support import Database, Processes, eventually
from tests.support.ports import free_port
from tests.support.waiting import aeventually

QUICK = ServiceSettings.of(events_keep_alive=0.05, events_poll=0.05)


def shop(ol: Outlast) -> tuple[FastAPI, JobEvents]:
    events = JobEvents(ol, QUICK)
    app = FastAPI(lifespan=lifespan(ol, events=events, concurrency=2))

    @app.get("/jobs/{id}")
    async def job(request: Request, id: str, tenant: str | None = None) -> Response:
        return await events.job(request, id, tenant=tenant)

    @app.get("/flows/{id}")
    async def flow(request: Request, id: str) -> Response:
        return await events.flow(request, id, kinds=["succeeded"])

    return app, events


@asynccontextmanager
async def visiting(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://here") as client,
    ):
        yield client


def ids(answer: httpx.Response) -> list[str]:
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    lines = answer.text.splitlines()
    return [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]


def counting(ol: Outlast) -> Any:
    @ol.task
    async def count(to: int, ctx: Context) -> None:
        for number in range(to):
            ctx.progress(number + 1, to)

    return count


async def test_a_job_is_followed_to_its_end_and_resumed(ol: Outlast) -> None:
    """R135: each event once and in order, whoever resumes and from where; then no more."""
    count, (app, _) = counting(ol), shop(ol)
    async with visiting(app) as client:
        job = await count.aenqueue(3)
        whole = ids(await client.get(f"/jobs/{job.id}"))
        assert len(whole) == 4 and whole[-1].endswith("-end")
        for seen in range(4):
            headers = {"last-event-id": whole[seen]}
            rest = await client.get(f"/jobs/{job.id}", headers=headers)
            assert rest.status_code == 204 if seen == 3 else ids(rest) == whole[seen + 1 :]


async def test_a_flow_is_followed_to_its_end(ol: Outlast) -> None:
    count, (app, _) = counting(ol), shop(ol)
    async with visiting(app) as client:
        jobs = await ol.aenqueue(group(count.job(0), count.job(0)).then(count.job(0)))
        answer = await client.get(f"/flows/{jobs[0].flow}")
        kinds = [line for line in answer.text.splitlines() if line.startswith("event: ")]
        assert kinds == ["event: succeeded"] * 3 + ["event: end"]
        headers = {"last-event-id": ids(answer)[-1]}
        assert (await client.get(f"/flows/{jobs[0].flow}", headers=headers)).status_code == 204


async def test_wrong_requests_are_refused(ol: Outlast) -> None:
    """Another tenant's job is as unknown as one that does not exist."""
    count, (app, events) = counting(ol), shop(ol)
    async with visiting(app) as client:
        job = await count.using(tenant="acme").aenqueue(1)
        for path in ("/jobs/none", f"/jobs/{job.id}?tenant=other", "/flows/none"):
            answer = await client.get(path)
            assert answer.status_code == 404, path
            assert answer.headers["content-type"] == "application/problem+json"
        wrong = await client.get(f"/jobs/{job.id}", headers={"last-event-id": "x"})
        assert (wrong.status_code, wrong.json()["detail"]) == (
            422, "Last-Event-ID must be the id of an event",
        )  # fmt: skip
        assert ids(await client.get(f"/jobs/{job.id}?tenant=acme"))
        events.close()
        assert (await client.get(f"/jobs/{job.id}")).status_code == 503


async def test_a_silent_stream_has_a_heartbeat_and_is_released_with_its_reader(
    ol: Outlast,
) -> None:
    """R135: nothing of it is left."""
    app, events = shop(ol)
    later = ol.task(lambda: None, name="later").using(delay=3600)
    async with app.router.lifespan_context(app):
        job, sent, gone = await later.aenqueue(), list[bytes](), asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        scope = {
            "type": "http", "method": "GET", "path": f"/jobs/{job.id}", "query_string": b"",
            "headers": [], "root_path": "", "scheme": "http", "http_version": "1.1",
        }  # fmt: skip
        reading = asyncio.create_task(app(scope, receive, send))
        await aeventually(lambda: sent.count(b": keep-alive\n\n") > 1)
        assert events.streams == 1
        gone.set()
        await reading
        assert events.streams == 0


async def test_an_app_starts_again(ol: Outlast) -> None:
    """On the same event loop and, with other tests, on another."""
    count, (app, _) = counting(ol), shop(ol)
    for _ in range(2):
        async with visiting(app) as client:
            job = await count.aenqueue(1)
            assert len(ids(await client.get(f"/jobs/{job.id}"))) == 2


SERVER = """
    import sys
    import uvicorn
    from fastapi import FastAPI, Request
    from outlast import Outlast
    from outlast.integrations.fastapi import JobEvents, lifespan

    ol = Outlast()
    events = JobEvents(ol)
    app = FastAPI(lifespan=lifespan(ol, events=events, concurrency=1))

    @app.get("/jobs/{id}")
    async def job(request: Request, id: str):
        return await events.job(request, id)

    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_does_not_wait_for_open_streams(
    ol: Outlast, database: Database, processes: Processes, number: int
) -> None:
    """They end at the signal; a server would wait for their readers, who do not go."""
    job = ol.task(lambda: None, name="later").using(delay=3600).enqueue()
    place = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    port = free_port()
    server = processes.python(SERVER, port, env=place)
    with httpx.Client(trust_env=False, verify=False, timeout=30) as client:
        address = f"http://127.0.0.1:{port}/jobs/{job.id}"
        eventually(lambda: _answers(client, port), timeout=30, message=server.output)
        with client.stream("GET", address) as answer:
            parts = answer.iter_raw()
            assert answer.status_code == 200 and next(parts)
            server.signal(number)
            server.wait(30)
            list(parts)  # a response that ends in order
    assert "Traceback" not in server.output()


def _answers(client: httpx.Client, port: int) -> bool:
    try:
        return client.get(f"http://127.0.0.1:{port}/jobs/none").status_code == 404
    except httpx.TransportError:
        return False
