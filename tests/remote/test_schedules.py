"""Remote workers and schedules: the service fires them, for the tasks of connected workers."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, Outlast
from outlast.model.schedule import tick_of_key
from outlast.remote import RemoteWorker
from tests.remote.test_worker import working
from tests.service.serving import Served
from tests.support import Database, aeventually
from tests.worker.working import sql


async def test_the_service_fires_for_remote_workers_and_their_jobs_know_their_ticks(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R234"""
    seen: dict[str, datetime | None] = {}

    @ol.task
    async def report(ctx: Context) -> None:
        seen[ctx.job.id] = ctx.tick

    ol.create_schedule("often", report.job(), every=1, overlap="allow")
    async with working(served, tmp_path):
        await aeventually(lambda: len(seen) >= 2, 60.0)
    jobs = {job.id: tick_of_key(job.key) for job in await ol.ajobs(limit=1000)}
    assert all(tick is not None and tick == jobs[id] for id, tick in seen.items())
    assert len(set(seen.values())) == len(seen)


def remote(served: Served, app: Outlast, folder: Path, *scopes: str, **limits: Any) -> RemoteWorker:
    token = served.token(*scopes, name="far", **limits)
    return RemoteWorker(served.url, token, app, concurrency=2, grace=1.0, spool=folder)


async def test_a_remote_worker_announces_the_schedules_of_its_code(
    served: Served, ol: Outlast, database: Database, tmp_path: Path
) -> None:
    """R234: added, fired for it, changed by its next deployment, and an operator's pause stays."""
    ran: list[datetime | None] = []
    far = Outlast("sqlite:////nowhere/at/all.db")

    @far.task(every=1, overlap="allow")
    async def refresh(ctx: Context) -> None:
        ran.append(ctx.tick)

    @far.task(cron="30 2 * * *", tz="Europe/Berlin", queue="night", tenant="acme")
    async def report(n: int = 1) -> None: ...

    async with remote(served, far, tmp_path / "1", "work", "enqueue"):
        await aeventually(lambda: len(ran) >= 2, 60.0)
    made = {one.name: one for one in await ol.aschedules()}
    assert made["report"].from_code and made["report"].tz == "Europe/Berlin"
    assert (made["report"].queue, made["report"].tenant) == ("night", "acme")
    assert made["refresh"].fired >= 2
    actions = (await ol.aschedule_report("report")).actions
    [action] = actions
    assert action["action"] == "announce" and action["by"].startswith("token far ")
    await ol.apause_schedule("report", "holidays")
    later = Outlast("sqlite:////nowhere/at/all.db")

    @later.task(name="report", cron="0 4 * * *", queue="night", tenant="acme")
    async def report_later(n: int = 1) -> None: ...

    async def changed() -> bool:
        return (await ol.aschedule_report("report")).schedule.cron == "0 4 * * *"

    async with remote(served, later, tmp_path / "2", "work", "enqueue"):
        await aeventually(changed, 30.0)
    assert (await ol.aschedule_report("report")).schedule.paused


@pytest.mark.parametrize(
    ("scopes", "limits", "why"),
    [
        (("work",), {}, "lacks the scope enqueue"),
        (("work", "enqueue"), {"tenant": "acme"}, "not restricted to one"),
        (("work", "enqueue"), {"queues": ["mail"]}, "no access to the queue"),
    ],
    ids=["scope", "tenant", "queue"],
)
async def test_schedules_that_a_token_may_not_announce_are_warned_of(
    served: Served, ol: Outlast, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    scopes: tuple[str, ...], limits: dict[str, Any], why: str,
) -> None:  # fmt: skip
    """R145: the worker works on, and its log says what to do."""

    @ol.task(every=3600, queue="night")
    def refresh() -> None: ...

    def warned() -> bool:
        return any("not announced" in line and why in line for line in caplog.messages)

    with caplog.at_level(logging.WARNING, "outlast.worker"):
        async with remote(served, ol, tmp_path, *scopes, **limits) as worker:
            await aeventually(warned, 30.0)
            await aeventually(lambda: worker.connected, 30.0)
    assert "the scopes work and enqueue for all tenants" in " ".join(caplog.messages)
    assert await ol.aschedules() == []


A_JOB = {
    "task": "t", "queue": "mail", "tenant": "acme", "args": "{}", "priority": 0,
    "max_attempts": 3, "max_crashes": 3,
}  # fmt: skip
ANNOUNCE = "/api/v1/dequeue/schedules"


def announcing(served: Served, token: str, name: str = "s", **said: Any) -> Any:
    one = {"name": name, "spec": said.pop("spec", {"every": 60}), "job": A_JOB | said}
    return served.post(ANNOUNCE, token, json={"schedules": [one]})


BAD_ANNOUNCEMENTS: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "a\x00b"},
    {"spec": {"cron": "soon"}},
    {"spec": {}},
    {"queue": ""},
    {"queue": "!x"},
    {"args": "[1]"},
    {"args": "nonsense"},
    {"key": "k"},
    {"delay": 5.0},
    {"after": ["0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"]},
    {"flow": "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"},
    {"lane": "a\nb"},
    {"task": None},
    {"priority": "high"},
    {"hooks": '{"dead": [{"task": "x"}]}'},
]


def test_a_bad_announcement_is_refused_and_nothing_is_stored(served: Served, ol: Outlast) -> None:
    token = served.token("work", "enqueue")
    for wrong in BAD_ANNOUNCEMENTS:
        assert announcing(served, token, **wrong).status_code == 422, wrong
        assert ol.schedules() == [], wrong


def test_a_name_that_is_in_use_out_of_reach_is_left_alone(
    served: Served, ol: Outlast, database: Database
) -> None:
    """R145: neither changed nor kept from being an orphan."""
    everywhere = served.token("work", "enqueue")
    assert announcing(served, everywhere, queue="night").json()["added"] == ["s"]
    # Announced a day ago: what was announced within an hour is left alone anyway.
    ago = "announced_at - 86400" if database.is_sqlite else "announced_at - interval '1 day'"
    sql(database, f"UPDATE {{schedule}} SET announced_at = {ago}")
    [before] = ol.schedules()
    mail = served.token("work", "enqueue", queues=["mail"])
    assert announcing(served, mail, spec={"every": 5}).json() == {
        "added": [], "changed": [], "refused": ["s"],
    }  # fmt: skip
    assert served.post(ANNOUNCE, mail, json={"names": ["s"]}).status_code == 200
    assert ol.schedules() == [before]
