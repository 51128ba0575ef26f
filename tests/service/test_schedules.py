"""Schedules over HTTP and in the dashboard."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest

from outlast import Outlast
from outlast.model.schedule_state import ScheduleDefinition
from outlast.ops.announce import announce
from tests.service.serving import Served

NEW = {"name": "nightly", "job": {"task": "report", "queue": "mail"}, "cron": "0 3 * * *"}


def test_a_schedule_is_made_shown_and_operated(served: Served) -> None:
    """R234"""
    admin, base = served.token("admin"), "/api/v1/schedules"
    assert served.post(base, admin, json=NEW).status_code == 201
    assert served.post(base, admin, json=NEW).status_code == 409
    assert served.post(base, admin, json=NEW | {"name": "x", "cron": "bad"}).status_code == 422
    named = {"name": "nightly"}
    assert served.post(f"{base}/pause", admin, json=named).json()["paused_at"] is not None
    assert served.post(f"{base}/resume", admin, json=named).json()["next_at"] is not None
    job = served.post(f"{base}/run", admin, json=named).json()
    changed = served.post(f"{base}/change", admin, json=named | {"tz": "Asia/Tokyo"}).json()
    assert (changed["cron"], changed["tz"]) == ("0 3 * * *", "Asia/Tokyo")
    shown = served.get(f"{base}/show", admin, params=named).json()
    assert (len(shown["next_runs"]), shown["history"][0]["id"]) == (10, job["id"])
    assert [one["name"] for one in served.get(base, admin).json()["schedules"]] == ["nightly"]
    assert served.get(base, served.token("read", tenant="other")).json()["schedules"] == []
    assert served.post(f"{base}/delete", admin, json=named).status_code == 204
    assert served.post(f"{base}/delete", admin, json=named).status_code == 404


def test_the_page_shows_next_and_last_runs_and_a_strip_of_a_day(served: Served) -> None:
    """R234"""
    admin = served.token("admin")
    page = served.get("/schedules", admin).text
    assert "No schedules" in page
    served.post("/api/v1/schedules", admin, json=NEW | {"cron": "0 */6 * * *"})
    served.post("/api/v1/schedules", admin, json=NEW | {"name": "<b>", "cron": "@daily"})
    served.post("/api/v1/schedules/run", admin, json={"name": "nightly"})
    page = served.get("/schedules", admin).text
    assert page.count('class="strip-tick"') in (5, 4 + 1)
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert "Run now" in page and "/schedules/pause?name=nightly" in page
    assert "Run now" not in served.get("/schedules", served.token("read")).text
    done = served.call("POST", "/schedules/pause", admin, data={"name": "nightly", "reason": "x"})
    assert done.status_code in (200, 303)
    assert "Resume" in served.get("/schedules", admin).text


def declare(ol: Outlast, number: int, **options: str) -> None:
    @ol.task(name="recurs", **options)  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def recurs(n: int) -> None: ...

    made = [
        ScheduleDefinition.of(f"schedule {n:05}", recurs.job(n), {"every": 3600})
        for n in range(number)
    ]
    ol.store.run(announce, made)


def test_schedules_are_read_a_page_at_a_time(served: Served, ol: Outlast) -> None:
    """R145, R166: every schedule once, in the order of names, with the number of all."""
    declare(ol, 120, tenant="acme")
    seen: list[str] = []
    cursor = None
    while True:
        asked = {"limit": 50} | ({"cursor": cursor} if cursor else {})
        page = served.get("/api/v1/schedules", served.token("read"), params=asked).json()
        assert page["count"] == 120
        seen += [one["name"] for one in page["schedules"]]
        if (cursor := page["next"]) is None:
            break
    assert seen == [f"schedule {n:05}" for n in range(120)]
    found = served.get("/api/v1/schedules", served.token("read"), params={"text": "E 0001"}).json()
    assert (found["count"], found["next"]) == (10, None)
    none = {"schedules": [], "count": 0, "next": None}
    other = served.token("read", tenant="other")
    assert served.get("/api/v1/schedules", other).json() == none
    wild = served.get("/api/v1/schedules", served.token("read"), params={"text": "%_"}).json()
    assert wild == none
    wrong = served.get("/api/v1/schedules", served.token("read"), params={"limit": 10_001})
    assert wrong.status_code == 422


def test_the_page_of_schedules_goes_on_until_all_were_seen(served: Served, ol: Outlast) -> None:
    """R166: with and without a filter; the filter stays on the next page."""
    declare(ol, 120)
    admin, seen = served.token("admin"), list[str]()
    path: str | None = "/schedules?text=schedule+0"
    while path is not None:
        page = unescape(served.get(path, admin).text)
        seen += re.findall(r'<th scope="row"[^>]*>(schedule \d+)', page)
        assert "of 120 schedules" in page
        assert (">First<" in page) == ("cursor" in path)
        path = (re.findall(r'href="([^"]*)" rel="next"', page) or [None])[0]
    assert seen == [f"schedule {n:05}" for n in range(120)]
    assert "No matching schedules" in served.get("/schedules?text=nothing", admin).text


@pytest.mark.slow_on("postgres")
@pytest.mark.quiet
def test_ten_thousand_schedules_are_a_page_of_fifty(served: Served, ol: Outlast) -> None:
    """R166: what is read is what is shown, and its count."""
    declare(ol, 10_000)
    admin, took = served.token("admin"), dict[str, float]()
    for path in ("/schedules", "/schedules?cursor=schedule+09000", "/api/v1/schedules"):
        served.get(path, admin)
        began = time.monotonic()
        answer = served.get(path, admin)
        took[path] = time.monotonic() - began
        assert "10,000 schedules" in answer.text or answer.json()["count"] == 10_000
        assert len(answer.content) < 200_000
    print({path: f"{1000 * seconds:.0f} ms" for path, seconds in took.items()})
    assert max(took.values()) < 0.3
