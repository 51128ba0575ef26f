"""A row that cannot be read is shown as such, and breaks no list, page, call or duty."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from outlast import Outlast
from outlast.service.route_table import ROUTES
from tests.cli.conftest import Commands
from tests.service.bad_rows import sample
from tests.service.dashboard.looking import looking
from tests.service.serving import Served
from tests.support import Database
from tests.support.maintenance import healer_of

pytestmark = [pytest.mark.kinds("sqlite", "postgres"), pytest.mark.fresh]

SSE = "text/event-stream"


def failures(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Which of the calls raised, and what."""
    found = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:300]
    return found


def test_every_verb_reads_around_a_bad_row(ol: Outlast, database: Database) -> None:
    """R218: lists show the bad rows as unreadable, and the good one as ever."""
    ids = sample(ol, database)
    calls: dict[str, Callable[[], Any]] = {
        "counts": ol.counts, "queues": ol.queues, "workers": ol.workers, "duties": ol.duties,
        "flows": ol.flows, "jobs": ol.jobs,
    }  # fmt: skip
    for kind, id in ids.items():
        calls |= {
            f"job {kind}": lambda id=id: ol.job(id).as_json(),
            f"history {kind}": lambda id=id: ol.history(id),
            f"explain {kind}": lambda id=id: ol.explain(id),
        }
    assert failures(calls) == {}
    listed = {job.id: job for job in ol.jobs()}
    assert set(ids.values()) <= set(listed)
    assert listed[ids["good"]].unreadable is None
    good = {"good", "flow"}
    silent = [kind for kind, id in ids.items() if kind not in good and not listed[id].unreadable]
    assert silent == []
    assert "run_at" in (listed[ids["far"]].unreadable or "")
    assert listed[ids["far"]].state == "scheduled"
    assert str(listed[ids["state"]].state) == "unreadable"
    json.dumps([job.as_json() for job in listed.values()])


@pytest.mark.kinds("sqlite")
def test_a_bad_row_of_a_worker_breaks_nothing(
    served: Served, ol: Outlast, database: Database
) -> None:
    """R218: SQLite keeps text in a column of numbers; what is said of other workers and of jobs
    that wait for one is shown all the same."""

    @ol.task
    def waiting() -> None: ...

    job = waiting.enqueue()
    with closing(sqlite3.connect(database.path)) as hand, hand:
        hand.execute(
            "INSERT INTO outlast_worker (id, host, pid, tasks, concurrency, running, state,"
            " version, lease, started_at, seen_at)"
            " VALUES ('bad', 'h', 'x', '[]', 'x', 'x', 'working', '1', 'x', 'x', 'x')"
        )
    admin = served.token("admin")
    calls: dict[str, Callable[[], Any]] = {
        "workers": lambda: [one.alive or one.serves("q") for one in ol.workers()],
        "explain": lambda: ol.explain(job.id),
    }
    assert failures(calls) == {}
    with looking(served) as browser:
        browser.log_in(admin)
        for path in ("/", "/workers", "/queues", f"/jobs/{job.id}"):
            assert browser.http.get(path).status_code == 200, path
    assert served.get("/api/v1/workers", admin).status_code == 200


def test_every_action_works_on_a_bad_row(ol: Outlast, database: Database) -> None:
    """R218: what cannot be read can be retried, cancelled, forgotten and removed."""
    ids = sample(ol, database)
    actions: dict[str, Callable[[], Any]] = {
        "retry dead": lambda: ol.retry(ids["dead"]),
        "cancel far": lambda: ol.cancel(ids["far"], "no date"),
        "cancel late": lambda: ol.cancel(ids["late"]),
        "reclaim": lambda: ol.reclaim(ids["running"]),
        "forget": lambda: ol.forget(ids["cancelled"]),
        "purge": lambda: ol.purge(state="succeeded"),
        "purge the dead": lambda: ol.purge(state="dead", queue="bad"),
        "retry all": ol.retry_all,
        "cancel the flow": lambda: ol.cancel_flow(str(ol.job(ids["flow"]).flow)),
    }
    assert failures(actions) == {}


def test_every_page_and_call_of_the_service_survives_bad_rows(
    served: Served, ol: Outlast, database: Database
) -> None:
    """R218: each route that reads, called for each bad row."""
    ids = sample(ol, database)
    admin = served.token("admin")
    flow = ol.job(ids["flow"]).flow
    wrong = {}
    with looking(served) as browser:
        browser.log_in(admin)
        for path in ("/dead", "/jobs?state=dead&error=Boom", "/jobs?text=x", "/schedule?queue=bad"):
            came = browser.http.get(path)
            assert came.status_code == 200, (path, came.text)
        for route in ROUTES:
            if route.method != "GET" or SSE in route.media or "static" in route.path:
                continue
            for path in paths(route.path, ids, str(flow)):
                asked = browser.http if route.is_page else served.http
                said = {} if route.is_page else {"authorization": f"Bearer {admin}"}
                came = asked.get(path, headers=said)
                if came.status_code >= 500:
                    wrong[path] = came.text[:200]
    assert wrong == {}
    page = served.get("/api/v1/jobs?queue=bad", admin).json()
    assert any(job["unreadable"] for job in page["jobs"])
    assert ids["good"] in {job["id"] for job in served.get("/api/v1/jobs", admin).json()["jobs"]}


def test_a_stream_of_events_survives_bad_rows(
    served: Served, ol: Outlast, database: Database
) -> None:
    """R218: a bad event is sent with what can be read of it, and the stream goes on to its end."""
    ids = sample(ol, database)
    said = {"accept": "application/x-ndjson"}
    came = served.get(f"/api/v1/jobs/{ids['dead']}/events", served.token("admin"), headers=said)
    assert came.status_code == 200, came.text
    frames = [json.loads(line) for line in came.text.splitlines()]
    assert [frame["kind"] for frame in frames][-1] == "end"
    assert "log" in {frame["kind"] for frame in frames}


def paths(path: str, ids: dict[str, str], flow: str) -> list[str]:
    if "{" not in path:
        return [path, f"{path}?state=dead", f"{path}?queue=bad"] if "job" in path else [path]
    base, _, name = path.partition("{")
    tail = name.partition("}")[2]
    if "flow" in base:
        return [f"{base}{flow}{tail}"]
    return [f"{base}{id}{tail}" for id in ids.values()]


def test_every_command_survives_bad_rows(ol: Outlast, database: Database) -> None:
    """R218: reading commands print what can be read."""
    ids = sample(ol, database)
    run = Commands(database)
    commands = [
        ("jobs",), ("jobs", "--json"), ("jobs", "--state", "scheduled"), ("dead",), ("queues",),
        ("workers",), ("doctor",), ("flows",), ("token", "list"), ("top", "--once"),
        *((verb, id) for verb in ("job",) for id in ids.values()),
        *(("job", id, "--json") for id in ids.values()),
    ]  # fmt: skip

    def call(command: tuple[str, ...]) -> None:
        answer = run(*command)
        assert answer.code in {0, 1}, answer
        assert "Traceback" not in answer.err
        assert "no such option" not in answer.err.lower(), answer.err

    wrong = failures({" ".join(command): lambda c=command: call(c) for command in commands})
    assert wrong == {}
    assert "unreadable" in run("job", ids["far"]).out


def test_every_duty_survives_bad_rows(ol: Outlast, database: Database) -> None:
    """R218: prune, audit, statistics and the rest do their work, and the good job runs."""
    ids = sample(ol, database)

    async def once() -> dict[str, str]:
        worker = ol.worker(queues=["good"])
        wrong = {}
        async with worker:
            job = await ol.aresult(ids["good"], timeout=20)
            assert job is None
            healer = healer_of(ol)
            for name, act in {
                "audit": healer.auditor.audit,
            }.items():
                try:
                    await healer.duties.duty(name, act, 0.0)()
                except Exception as error:
                    wrong[name] = repr(error)
        return wrong

    assert asyncio.run(once()) == {}
    failed = {duty.name: duty.error for duty in ol.duties() if duty.error}
    assert failed == {}
