"""What operators do over HTTP: reclaim, purge, drain."""

from __future__ import annotations

import json

import pytest

from outlast import Outlast
from outlast.model.breaker import Circuit, OpenBreaker
from outlast.ops import workers as worker_ops
from outlast.ops.access import Access
from outlast.ops.breakers import open_breaker
from outlast.ops.claim import ClaimRequest, claim
from outlast.ops.retention import purge as purge_op
from tests.service.serving import Served
from tests.support import Database


def enqueued(served: Served, tenant: str, number: int = 2) -> list[str]:
    jobs = [{"task": "t"}] * number
    token = served.token("enqueue", tenant=tenant)
    made = served.post("/api/v1/jobs/batch", token, json={"jobs": jobs}).json()["jobs"]
    return [job["id"] for job in made]


def test_a_running_job_is_taken_from_its_worker(served: Served) -> None:
    """R200: unspent, and by whom is on record; one that has ended is not (409)."""
    (id,) = enqueued(served, "acme", 1)
    served.ol.store.run(claim, ClaimRequest("hung", "default", 1, 60.0))
    token = served.token("admin", tenant="acme", name="ops")
    job = served.post(f"/api/v1/jobs/{id}/reclaim", token).json()
    assert (job["state"], job["attempt"], job["worker"]) == ("ready", 0, None)
    events = served.get(f"/api/v1/jobs/{id}/history", token).json()["events"]
    told = next(event["data"] for event in events if event["kind"] == "reclaim")
    assert told["by"].startswith("token ops") and told["worker"] == "hung"
    assert served.post(f"/api/v1/jobs/{id}/reclaim", token).status_code == 200
    served.ol.cancel(id)
    assert served.post(f"/api/v1/jobs/{id}/reclaim", token).status_code == 409


def test_an_open_breaker_is_shown_and_closed(served: Served) -> None:
    """R145, R223: what an error says may be of anybody's job, so one tenant does not read it."""
    enqueued(served, "acme")
    down = OpenBreaker(Circuit("default", "t"), "first", "ConnectionError")
    served.ol.store.run(open_breaker, down, "refused", "w1", 60.0)
    everybody, own = served.token("admin"), served.token("admin", tenant="acme")
    (queue,) = served.get("/api/v1/queues", everybody).json()["queues"]
    (shown,) = queue["breakers"]
    assert (shown["task"], shown["kind"], shown["message"]) == ("t", "ConnectionError", "refused")
    assert (
        shown["opened_by"] == "w1" and shown["probing"] is False and 50 < shown["next_probe"] <= 60
    )
    (queue,) = served.get("/api/v1/queues", own).json()["queues"]
    assert (queue["breakers"][0]["message"], queue["breakers"][0]["opened_by"]) == (None, None)
    other = {"queue": "default", "task": "typo"}
    answer = served.post("/api/v1/queues/close-breaker", everybody, json=other)
    assert answer.json() == {"queue": "default", "closed": 0, "open": ["t"]}
    close = {"queue": "default", "task": "t"}
    assert served.post("/api/v1/queues/close-breaker", own, json=close).status_code == 403
    for closed in (1, 0):
        answer = served.post("/api/v1/queues/close-breaker", everybody, json=close)
        assert answer.json() == {"queue": "default", "closed": closed, "open": []}


def test_a_tenant_removes_its_own_jobs_alone(served: Served, database: Database) -> None:
    """R145, R200, R231: page by page, what fits and is old enough."""
    for tenant in ("acme", "other"):
        for id in enqueued(served, tenant):
            served.ol.cancel(id)
    token = served.token("admin", tenant="acme")

    def purge(**said: object) -> dict[str, object]:
        answer = served.post("/api/v1/jobs/purge", token, json={"state": "cancelled", **said})
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    assert purge(older=3600) == {
        "done": 0, "matched": 2, "left": {"ended too recently": 2}, "more": 0, "next": None,
    }  # fmt: skip
    first = purge(limit=1)
    assert first["done"] == 1 and first["next"] is not None
    assert purge()["done"] == 1 and purge()["done"] == 0
    assert [job.tenant for job in served.ol.jobs()] == ["other", "other"]
    for bad in ({}, {"state": "running"}, {"state": "dead", "older": -1}):
        assert served.post("/api/v1/jobs/purge", token, json=bad).status_code == 422
    theirs = [job.id for job in served.ol.jobs()]
    assert served.ol.store.run(purge_op, theirs, 0.0, "test", {}, Access("acme")) == 0
    table = "outlast_event" if database.is_sqlite else "event"
    rows = database.rows(f"SELECT CAST(data AS text) FROM {table} WHERE kind = 'purge'")
    assert [json.loads(data)["number"] for (data,) in rows] == [1, 1]


def test_a_worker_is_drained_by_who_may_see_all_queues(served: Served) -> None:
    """R200"""
    served.ol.store.run(worker_ops.register, served.ol.worker().registration_row() | {"id": "w1"})
    token = served.token("admin")

    def state() -> str:
        listed = served.get("/api/v1/workers", token).json()["workers"]
        return next(str(one["state"]) for one in listed if one["id"] == "w1")

    answer = served.post("/api/v1/workers/drain", token, json={"worker": "w1"})
    assert answer.json() == {"worker": "w1", "draining": True}
    assert state() == "draining"
    served.post("/api/v1/workers/undrain", token, json={"worker": "w1"})
    assert state() == "working"
    for worker, status in (("w2", 404), ("remote-a-b", 422)):
        answer = served.post("/api/v1/workers/drain", token, json={"worker": worker})
        assert answer.status_code == status


@pytest.mark.kinds("postgres")
def test_a_wake_up_that_fails_undoes_nothing_and_fails_nothing(
    served: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R117: the job is cancelled, and the caller is told so; a word to workers only makes things
    faster. Here their channel has a name that PostgreSQL does not take."""
    (id,) = enqueued(served, "acme", 1)
    served.ol.store.run(claim, ClaimRequest("w", "default", 1, 60.0))
    monkeypatch.setattr(type(ol.store), "channel", "x" * 100)
    answer = served.post(f"/api/v1/jobs/{id}/cancel", served.token("admin"), json={})
    assert answer.status_code == 200 and answer.json()["cancelling"]


def test_a_queue_is_told_how_long_to_keep_what_has_ended(served: Served) -> None:
    """R165"""
    token = served.token("admin")
    for keep in (60.5, None):
        said = {"queue": "mail", "keep": keep}
        assert served.post("/api/v1/queues/keep", token, json=said).json() == said
        (queue,) = served.get("/api/v1/queues", token).json()["queues"]
        assert (queue["name"], queue["keep"], queue["paused"]) == ("mail", keep, False)
    for bad in ({"queue": "mail"}, {"queue": "mail", "keep": -1}, {"queue": "!", "keep": 1}):
        assert served.post("/api/v1/queues/keep", token, json=bad).status_code == 422


def test_jobs_that_wait_are_changed_by_filter(served: Served) -> None:
    """A token changes the jobs in its reach, and moves them to queues in its reach."""
    mine, theirs = enqueued(served, "acme"), enqueued(served, "other")
    token = served.token("admin", "read", tenant="acme")
    where = "/api/v1/jobs"
    done = served.post(f"{where}/reschedule", token, json={"state": "ready", "delay": 60}).json()
    assert done == {"done": 2, "matched": 2, "left": {}, "more": 0, "next": None}
    assert served.post(f"{where}/reschedule", token, json={"delay": 0}).json()["done"] == 2
    assert served.post(f"{where}/prioritize", token, json={"priority": 7}).json()["done"] == 2
    moved = {"queue": "default", "to": "bulk"}
    assert served.post(f"{where}/move", token, json=moved).json()["done"] == 2
    found = {id: served.ol.job(id) for id in mine + theirs}
    assert [(found[id].queue, found[id].priority) for id in mine] == [("bulk", 7)] * 2
    assert [(found[id].queue, found[id].priority) for id in theirs] == [("default", 0)] * 2
    narrow = served.token("admin", tenant="acme", queues=["bulk"])
    back = {"queue": "bulk", "to": "default"}
    assert served.post(f"{where}/move", narrow, json=back).status_code == 403
    for path, body in [("reschedule", {}), ("move", {"to": "bulk"}), ("prioritize", {})]:
        assert served.post(f"{where}/{path}", token, json=body).status_code == 422


def test_limits_and_lanes_are_shown_and_changed(served: Served) -> None:
    """R238: by an operator's token; lanes may be named for tenants, so no tenant's token sees
    them."""
    admin = served.token("admin", "read")
    body = {"queue": "default", "changes": {"running": 5, "lane_rate": "60/m"}}
    changed = served.post("/api/v1/queues/limit", admin, json=body).json()
    assert changed["limits"] == changed["overrides"] == {"running": 5, "lane_rate": 1.0}
    enqueued(served, "acme", 3)
    lanes = served.get("/api/v1/queues/lanes?queue=default", admin).json()["lanes"]
    assert [(lane["lane"], lane["ready"], lane["running"]) for lane in lanes] == [("default", 3, 0)]
    (queue,) = served.get("/api/v1/queues", admin).json()["queues"]
    assert queue["limits"] == {"running": 5, "lane_rate": 1.0}
    tenant = served.token("admin", "read", tenant="acme")
    assert served.get("/api/v1/queues/lanes?queue=default", tenant).status_code == 403
    assert served.post("/api/v1/queues/limit", tenant, json=body).status_code == 403
    wrong = {"queue": "default", "changes": {"running": -1}}
    refused = served.post("/api/v1/queues/limit", admin, json=wrong)
    assert refused.status_code == 422 and "running" in refused.text
