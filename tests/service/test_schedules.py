"""Schedules over HTTP and in the dashboard."""

from __future__ import annotations

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
