"""Jobs over the network: what is enqueued, seen and steered there is what is so everywhere."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from typing import Any

import pytest
from click.testing import CliRunner

from outlast import Outlast, Permanent
from outlast.cli import outlast
from outlast.ops import events
from outlast.ops.finish import finish
from tests.cli.conftest import work_off
from tests.service.following import claimed, say
from tests.service.serving import Served
from tests.store.jobs import ending
from tests.support import Database

JOBS = "/api/v1/jobs"
NONE = "0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f"


def test_a_job_is_the_same_on_every_path(served: Served, ol: Outlast, database: Database) -> None:
    """R167: the API, the command line and the library say the same of it."""
    made = served.post(JOBS, json={"task": "extract", "args": {"doc": 7}, "priority": 5})
    assert made.status_code == 201, made.text
    id = made.json()["id"]
    place = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    told = CliRunner().invoke(outlast, ["jobs", "--json"], env=place).stdout
    listed = served.get(JOBS).json()["jobs"][0]
    read = served.get(f"{JOBS}/{id}").json()
    assert read == made.json() == ol.job(id).as_json() == json.loads(told)[0]
    assert listed == {name: read[name] for name in read if name not in ("args", "result")}
    assert read["args"] == {"doc": 7} and read["priority"] == 5


def test_a_job_that_is_not_there_is_not_found(served: Served) -> None:
    for id in (NONE, "x", "%00", "..%2Fjobs", "%F0%9F%92%A9", "1" * 500):
        answer = served.get(f"{JOBS}/{id}")
        assert answer.status_code == 404, id
        assert answer.headers["content-type"] == "application/problem+json"
    assert served.get(f"{JOBS}/{NONE}").json()["type"] == "urn:outlast:job-not-found"


def test_a_request_that_is_sent_again_makes_no_second_job(served: Served, ol: Outlast) -> None:
    """R163: one job, many, and flows; a key that is used for something else is a conflict."""
    plans: list[tuple[str, Any]] = [
        ("", {"task": "a", "args": {"n": 1}}),
        ("/batch", {"jobs": [{"task": "a"}, {"task": "b", "key": "own"}]}),
        ("../flows", {"jobs": [{"task": "a", "name": "x"}, {"task": "b", "after": ["x"]}]}),
        ("../flows", {"flow": {"chain": [{"task": "a"}, {"group": [{"task": "b"}] * 3}]}}),
    ]
    for number, (path, body) in enumerate(plans):
        where = f"{JOBS}{path}" if not path.startswith("..") else "/api/v1/flows"
        key = {"idempotency-key": f"request {number}"}
        first = served.post(where, json=body, headers=key)
        before = sum(ol.counts().values())
        second = served.post(where, json=body, headers=key)
        assert first.status_code == second.status_code == 201, first.text
        assert _ids(first.json()) == _ids(second.json())
        assert sum(ol.counts().values()) == before
    other = served.post(JOBS, json={"task": "z"}, headers={"idempotency-key": "request 0"})
    assert other.status_code == 409 and other.json()["type"] == "urn:outlast:key-conflict"


def test_a_flow_has_one_key(served: Served, ol: Outlast) -> None:
    """R224: the header or `key` names the whole flow; keys of its jobs that would split it do not
    pass, and neither does another flow under the same key."""
    parts = [{"task": "a", "args": {"n": n}} for n in range(3)]
    body = {"flow": {"chain": [{"group": parts}, {"task": "b"}]}}
    again = {"idempotency-key": "month 7"}
    made = [served.post("/api/v1/flows", json=body, headers=again).json() for _ in range(2)]
    made += [served.post("/api/v1/flows", json={**body, "key": "own"}).json() for _ in range(2)]
    assert made[0] == made[1] and made[2] == made[3]
    assert {job["key"] for job in made[0]["jobs"]} == {None}
    assert served.get(f"/api/v1/flows/{made[2]['flow']}").json()["key"] == "own"
    other = served.post("/api/v1/flows", json={**body, "jobs": None, "flow": {"group": parts}},
                        headers=again)  # fmt: skip
    assert other.status_code == 409 and made[0]["flow"] in other.json()["detail"]
    split = {"flow": {"chain": [{"group": parts}, {"task": "b", "key": "callback"}]}}
    assert served.post("/api/v1/flows", json=split).status_code == 201
    refused = served.post("/api/v1/flows", json=split)
    assert refused.status_code == 422 and "'callback'" in refused.text
    assert sum(ol.counts().values()) == 12


def test_the_header_and_the_key_in_the_body_are_one_key(served: Served, ol: Outlast) -> None:
    """R003, R224: given both ways alike it is one key; two different ones are refused."""
    key = {"idempotency-key": "order-7"}
    job = {"task": "a", "key": "order-7"}
    flow = {"flow": {"chain": [{"task": "c"}, {"task": "d"}]}, "key": "order-7"}
    for path, body in ((JOBS, job), ("/api/v1/flows", flow)):
        both = served.post(path, json=body, headers=key)
        assert both.status_code == 201, both.text
        assert _ids(served.post(path, json=body).json()) == _ids(both.json())
        before = sum(ol.counts().values())
        refused = served.post(path, json=body, headers={"idempotency-key": "order-8"})
        assert refused.status_code == 422
        assert "'order-8'" in refused.text and "'order-7'" in refused.text
        assert sum(ol.counts().values()) == before
    batch = served.post(f"{JOBS}/batch", json={"jobs": [job, job]}, headers=key)
    assert batch.status_code == 422 and "leave out the header" in batch.text
    plain = {name: value for name, value in flow.items() if name != "key"}
    again = served.post("/api/v1/flows", json=plain, headers=key).json()
    assert served.get(f"/api/v1/flows/{again['flow']}").json()["key"] == "order-7"
    assert _ids(again) == _ids(served.post("/api/v1/flows", json=flow).json())


def test_callers_read_their_own_keys(served: Served) -> None:
    """R003, R224: in a job, in a flow, and in what a conflict says; with what has the key."""
    key = {"idempotency-key": "mine"}
    one = served.post(JOBS, json={"task": "a"}, headers=key).json()
    many = {"jobs": [{"task": "b"}, {"task": "c"}]}
    made = served.post(f"{JOBS}/batch", json=many, headers=key).json()
    assert [one["key"], *(job["key"] for job in made["jobs"])] == ["mine", "mine[0]", "mine[1]"]
    parts = [{"task": "d"}, {"task": "e"}]
    flow = served.post("/api/v1/flows", json={"flow": {"chain": parts}}, headers=key).json()["flow"]
    told = served.post(JOBS, json={"task": "z"}, headers=key).json()
    assert told["job"] == one["id"] and "flow" not in told
    assert told["detail"].startswith("The key 'mine' in queue 'default' already belongs to job")
    other = {"flow": {"chain": parts[::-1]}}
    for said in ({"json": other, "headers": key}, {"json": {**other, "key": "mine"}}):
        told = served.post("/api/v1/flows", **said).json()
        assert told["flow"] == flow and "job" not in told, told
        assert told["detail"].startswith("The key 'mine' already belongs to flow")


def _ids(answer: Any) -> list[str]:
    return [job["id"] for job in answer.get("jobs", [answer])]


def test_flows_wait_as_they_were_told(served: Served) -> None:
    graph = {
        "name": "month end",
        "jobs": [
            {"task": "load", "name": "one"},
            {"task": "load", "name": "two"},
            {"task": "report", "after": ["one", "two"], "when": "finished"},
        ],
    }
    made = served.post("/api/v1/flows", json=graph).json()
    assert [job["waits_for"] for job in made["jobs"]] == [0, 0, 2]
    flow = served.get(f"/api/v1/flows/{made['flow']}").json()
    assert (flow["name"], flow["total"], flow["state"]) == ("month end", 3, "running")
    first = served.get(f"/api/v1/flows/{made['flow']}/jobs?limit=2").json()
    rest = served.get(f"/api/v1/flows/{made['flow']}/jobs?cursor={first['next']}").json()
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == _ids(made)
    joined = served.post(JOBS, json={"task": "mail", "after": [_ids(made)[2]]}).json()
    assert joined["state"] == "waiting"
    gone = served.post(f"/api/v1/flows/{made['flow']}/cancel", json={"reason": "wrong month"})
    assert gone.json()["state"] == "cancelled" and gone.json()["reason"] == "wrong month"
    back = served.post(f"/api/v1/flows/{made['flow']}/redrive")
    assert back.json()["done"] == 4, "and the one that could not run because of it"


@pytest.mark.parametrize(
    "flow",
    [
        {"jobs": [{"task": "a", "name": n, "after": [a]} for n, a in ("xy", "yx")]},
        {"jobs": [{"task": "a", "after": ["nobody"]}]},
        {"jobs": [{"task": "a", "name": "x"}, {"task": "a", "name": "x"}]},
        {"jobs": [{"task": "a"}], "flow": {"chain": []}},
        {"flow": {"chain": []}},
        {},
    ],
)  # fmt: skip
@pytest.mark.kinds("sqlite")
def test_flows_that_cannot_be_are_refused(served: Served, ol: Outlast, flow: Any) -> None:
    assert served.post("/api/v1/flows", json=flow).status_code == 422
    assert sum(ol.counts().values()) == 0


def test_tasks_of_an_app_are_checked(served: Served, ol: Outlast) -> None:
    """With an app the arguments fit its tasks; what it does not know is stored as it is."""

    @ol.task(queue="docs", priority=7)
    def due(day: date, n: int = 1) -> None: ...

    good = served.post(JOBS, json={"task": "due", "args": {"day": "2030-01-31"}})
    assert good.status_code == 201
    assert good.json()["queue"] == "docs" and good.json()["priority"] == 7
    bad = served.post(JOBS, json={"task": "due", "args": {"day": "never", "x": 1}})
    assert bad.status_code == 422
    assert {one["path"] for one in bad.json()["problems"]} >= {"day"}
    assert served.post(JOBS, json={"task": "unknown", "args": {"x": [1]}}).status_code == 201


def test_jobs_are_steered_and_their_story_is_told(served: Served, ol: Outlast) -> None:
    """R199, R200: cancel, redrive, explain, history, pause; who did it is on record."""

    @ol.task(max_attempts=1)
    def fails() -> None:
        raise Permanent("no luck")

    job = fails.enqueue()
    asyncio.run(work_off(ol))
    told = served.get(f"{JOBS}/{job.id}/explain").json()
    assert told["state"] == "dead" and "no luck" in told["explanation"]
    story = served.get(f"{JOBS}/{job.id}/history").json()
    assert [one["outcome"] for one in story["attempts"]] == ["permanent"]
    assert served.post(f"{JOBS}/{job.id}/redrive").json()["state"] == "ready"
    assert (
        served.post(f"{JOBS}/{job.id}/cancel", json={"reason": "x"}).json()["state"] == "cancelled"
    )
    story = served.get(f"{JOBS}/{job.id}/history?limit=1").json()
    assert story["events"][0]["kind"] == "redrive" and story["next"] is not None
    rest = served.get(f"{JOBS}/{job.id}/history?after={story['next']}").json()
    assert [one["kind"] for one in rest["events"]] == ["cancel"]
    assert rest["events"][0]["data"]["by"] == "a local user"
    paused = served.post("/api/v1/queues/pause", json={"queue": "default"}).json()
    assert paused == {"queue": "default", "paused": True}
    (queue,) = served.get("/api/v1/queues").json()["queues"]
    assert queue["paused"] and queue["counts"]["cancelled"] == 1
    served.post("/api/v1/queues/resume", json={"queue": "default"})
    assert [one.paused for one in ol.queues()] == [False]
    assert served.get("/api/v1/duties").json()["duties"]


def test_many_are_redriven_and_cancelled_by_filter(served: Served, ol: Outlast) -> None:
    """R200: so many in one request, and where to go on."""
    jobs = [{"task": "t", "queue": "a"}] * 5 + [{"task": "t", "queue": "b"}] * 2
    served.post(f"{JOBS}/batch", json={"jobs": jobs})
    body: dict[str, Any] = {"queue": "a", "limit": 3}
    first = served.post(f"{JOBS}/cancel", json=body).json()
    second = served.post(f"{JOBS}/cancel", json={**body, "cursor": first["next"]}).json()
    assert (first["done"], second["done"], second["next"]) == (3, 2, None)
    assert ol.counts()["cancelled"] == 5 and ol.counts()["ready"] == 2
    again = served.post(f"{JOBS}/redrive", json={"state": "cancelled", "queue": "a"}).json()
    assert again["done"] == 5 and ol.counts()["ready"] == 7


def test_pages_follow_each_other_without_gap_or_repetition(served: Served) -> None:
    """R166: also while jobs come in."""
    made = served.post(f"{JOBS}/batch", json={"jobs": [{"task": f"t{n % 3}"} for n in range(20)]})
    ids = [job["id"] for job in made.json()["jobs"] if job["task"] == "t1"]
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = served.get(f"{JOBS}?task=t1&limit=3" + (cursor and f"&cursor={cursor}")).json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
        served.post(JOBS, json={"task": "t1"})
    assert seen == ids[::-1]


def test_what_is_forgotten_is_gone_and_that_it_was_stays(
    served: Served, ol: Outlast, database: Database
) -> None:
    """R165: arguments, result, errors and what attempts said; state and times stay."""
    body = {"task": "t", "args": {"name": "Ada Lovelace"}}
    job = served.post(JOBS, json=body).json()
    early = served.post(f"{JOBS}/{job['id']}/forget")
    assert early.status_code == 409 and ol.job(job["id"]).args == {"name": "Ada Lovelace"}
    served.post(f"{JOBS}/{job['id']}/cancel", json={"reason": "Ada asked"})
    for _ in range(2):
        gone = served.post(f"{JOBS}/{job['id']}/forget")
        assert gone.status_code == 200
    read = served.get(f"{JOBS}/{job['id']}").json()
    assert read["args"] is None and read["result"] is None and read["state"] == "cancelled"
    table = "outlast_job" if database.is_sqlite else "job"
    assert "Ada" not in str(database.rows(f"SELECT * FROM {table}"))


def test_what_attempts_said_and_failed_with_is_forgotten_too(
    served: Served, ol: Outlast, database: Database
) -> None:
    """R165: in every table; how each of them ended stays."""
    held = claimed(ol, args='{"name": "Ada"}')
    say(ol, held, [1], note="Ada")
    told = {"type": "Unknown", "message": "no such person: Ada", "traceback": "Ada"}
    ol.store.run(finish, [ending(held, "permanent", error=told)])
    for _ in range(2):
        assert served.post(f"{JOBS}/{held.id}/forget").status_code == 200
    prefix = "outlast_" if database.is_sqlite else ""
    for table in ("job", "attempt", "event"):
        assert "Ada" not in str(database.rows(f"SELECT * FROM {prefix}{table}")), table
    ol.store.run(events.assign_positions)
    found = {one.kind: one.data for one in ol.store.run(events.page_of_job, held.id, 0, None, 9)[0]}
    assert found["progress"] is None and '"dead"' in str(found["attempt"])


def test_unique_and_debounced_jobs_over_http(served: Served, ol: Outlast) -> None:
    """R242: the winner is the answer."""
    body: dict[str, Any] = {"task": "sync", "key": "inbox-7", "unique": "waiting"}
    first, again = (served.post(JOBS, json=body).json()["id"] for _ in range(2))
    assert first == again
    body = {"task": "index", "key": "doc-7", "debounce": 5, "max_wait": 60}
    made = [served.post(JOBS, json=body | {"args": {"n": n}}).json() for n in range(2)]
    assert made[0]["id"] == made[1]["id"] and made[1]["args"] == {"n": 1}
    for wrong in ({"unique": "often"}, {"unique": "waiting", "key": None}, {"debounce": 0}):
        assert served.post(JOBS, json=body | {"debounce": None} | wrong).status_code == 422


def test_a_request_names_the_lane_of_a_job(served: Served, ol: Outlast) -> None:
    """R237, R242: one job, many, a flow and a unique key; what is no name is refused."""
    ol.limit("mail", lane_running=1)
    body: dict[str, Any] = {"task": "send", "queue": "mail"}
    assert served.post(JOBS, json=body | {"lane": "acme"}).json()["lane"] == "acme"
    assert served.post(JOBS, json=body).json()["lane"] == "default"
    many = [body | {"lane": lane, "key": "k", "unique": "active"} for lane in ("a", "b")]
    made = served.post(f"{JOBS}/batch", json={"jobs": many}).json()["jobs"]
    assert [job["lane"] for job in made] == ["a", "a"], "the first holds the key"
    flow = {"flow": {"chain": [body | {"lane": "x"}, body]}}
    made = served.post("/api/v1/flows", json=flow).json()["jobs"]
    assert [job["lane"] for job in made] == ["x", "default"]
    before = len(ol.jobs(limit=100))
    for wrong in ("", "a\nb", "x" * 201, 7):
        assert served.post(JOBS, json=body | {"lane": wrong}).status_code == 422
    assert len(ol.jobs(limit=100)) == before


def test_a_tenant_s_token_names_no_other_tenant_s_lane(served: Served, ol: Outlast) -> None:
    """R145, R239: where lanes are tenants; elsewhere a lane is a name like any other."""
    ol.queue("fair", lane="tenant")
    ol._declare_queues()
    acme, everybody = served.token("enqueue", tenant="acme"), served.token("enqueue")
    body: dict[str, Any] = {"task": "send", "queue": "fair"}
    for lane in ("other", "acme-2"):
        named = body | {"lane": lane}
        for path, sent in ((JOBS, named), (f"{JOBS}/batch", {"jobs": [body, named]})):
            refused = served.post(path, acme, json=sent)
            assert refused.status_code == 403 and "omit the lane" in refused.text
    assert ol.jobs() == []
    for token, queue, lane in (
        (acme, "fair", "acme"),
        (acme, "plain", "x"),
        (everybody, "fair", "acme-2"),
    ):
        sent = body | {"queue": queue, "lane": lane}
        assert served.post(JOBS, token, json=sent).status_code == 201
    assert sorted(job.lane or "" for job in ol.jobs()) == ["acme", "acme-2", "x"]


def test_a_full_queue_is_too_many_requests(served: Served, database: Database) -> None:
    """R244: a server that declares nothing itself learns of it from the database."""
    with Outlast(database.url, schema=database.schema) as elsewhere:
        elsewhere.queue("ingest", most_waiting=1, overflow="refuse")
        elsewhere._declare_queues()
    full = {"task": "load", "queue": "ingest"}
    assert served.post(JOBS, json=full).status_code == 201
    refused = served.post(JOBS, json=full)
    assert refused.status_code == 429
    told = refused.json()
    assert told["type"] == "urn:outlast:queue-full" and "1 may be" in told["detail"]


def test_a_quota_that_is_used_up_says_when_to_come_back(served: Served, database: Database) -> None:
    """R149: a server that declares nothing itself learns of it from the database."""
    with Outlast(database.url, schema=database.schema) as elsewhere:
        elsewhere.queue("ingest", quota="1/h")
        elsewhere._declare_queues()
    asked = {"task": "load", "queue": "ingest"}
    assert served.post(JOBS, json=asked).status_code == 201
    refused = served.post(JOBS, json=asked)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 3600
    told = refused.json()
    assert told["type"] == "urn:outlast:quota-exceeded" and "room again at" in told["detail"]
