"""Tokens that may not read: whatever they call, no answer shows them what became of a job."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from outlast.model.api_token import Scope
from outlast.service.route import PUBLIC, Route
from outlast.service.route_table import ROUTES
from tests.service.serving import Served, bearer
from tests.service.test_matrix import SAMPLES, STREAM
from tests.store.jobs import end, take

BLIND = [Scope.ENQUEUE, Scope.WORK]
RESULT, WORKER, ERROR = "the-result-of-it", "the-worker-of-it", "the-error-of-it"
ONE = {"task": "t", "queue": "mail", "key": "one"}
TWO = {"task": "t", "queue": "mail", "key": "two"}
AGAIN: dict[str, dict[str, Any]] = {
    "enqueue_job": {"json": ONE},
    "enqueue_jobs": {"json": {"jobs": [ONE, TWO]}},
    "enqueue_flow": {
        "json": {"flow": {"chain": [{"task": "t", "queue": "mail"}]}},
        "headers": {"idempotency-key": "flow"},
    },
}


def ended_jobs(served: Served) -> str:
    """What `AGAIN` enqueues has been enqueued and has ended; the id of one that succeeded."""
    token = served.token("admin", tenant="acme")
    paths = {route.name: route.path for route in ROUTES}
    for name in ("enqueue_jobs", "enqueue_flow"):
        served.post(paths[name], token, **AGAIN[name]).raise_for_status()
    run = served.ol.store.run
    first, *others = take(run, 3, queue="mail", worker=WORKER)
    end(run, first, result=f'"{RESULT}"')
    for claim in others:
        dead = {"type": "Permanent", "message": ERROR, "traceback": ""}
        end(run, claim, "permanent", error=dead)
    return first.id


@pytest.mark.kinds("sqlite")
def test_no_answer_shows_what_became_of_a_job_to_a_token_that_may_not_read(served: Served) -> None:
    """R227: every route × every set of scopes without `read` and `admin`: no result, no worker, no
    error; and what enqueues answers with id and state alone."""
    id = ended_jobs(served)
    for number in (1, 2):
        for scopes in combinations(BLIND, number):
            token = served.token(*scopes, tenant="acme")
            for route in ROUTES:
                if route.scope is PUBLIC:
                    continue
                text = called(served, route, token, id)
                for secret in (RESULT, WORKER, ERROR):
                    assert secret not in text, (scopes, route.name)


def called(served: Served, route: Route, token: str, id: str) -> str:
    path = route.path.replace("{id}", id).replace("{token}", id)
    asked = SAMPLES[route.name] | AGAIN.get(route.name, {})
    if STREAM in route.media:
        with served.http.stream(route.method, path, **{"headers": bearer(token), **asked}) as got:
            return str(got.headers)
    return served.call(route.method, path, token, **asked).text


@pytest.mark.parametrize("name", AGAIN)
def test_enqueueing_again_shows_more_only_to_who_may_read(served: Served, name: str) -> None:
    """R227: the same answer for jobs that are new and that existed; all of it with `read`."""
    ended_jobs(served)
    (path,) = (route.path for route in ROUTES if route.name == name)

    def jobs(*scopes: str) -> list[dict[str, Any]]:
        token = served.token(*scopes, tenant="acme")
        answer = served.post(path, token, **AGAIN[name])
        assert answer.status_code == 201, answer.text
        found: list[dict[str, Any]] = answer.json().get("jobs") or [answer.json()]
        return found

    shown = jobs("enqueue", "read")
    assert {job["worker"] for job in shown} == {WORKER} == {job["worker"] for job in jobs("admin")}
    wanted = [{"id": job["id"], "state": job["state"]} for job in shown]
    assert jobs("enqueue") == jobs("enqueue", "work") == wanted
    new = served.post(
        "/api/v1/jobs", served.token("enqueue"), json={"task": "t", "key": "new"}
    ).json()
    assert new == {"id": new["id"], "state": "ready"}


@pytest.mark.kinds("sqlite")
def test_a_conflict_names_no_flow_out_of_reach(served: Served) -> None:
    """R227: a flow's key is its tenant's; who reaches other queues than the flow learns no id."""
    key = {"idempotency-key": "flow"}

    def sent(queue: str, **limits: Any) -> Any:
        body = {"flow": {"chain": [{"task": "t", "queue": queue}]}}
        token = served.token("enqueue", tenant="acme", **limits)
        return served.post("/api/v1/flows", token, json=body, headers=key)

    flow = sent("else").json()["flow"]
    near, far = sent("mail"), sent("mail", queues=["mail"])
    assert near.status_code == far.status_code == 409
    assert near.json()["type"] == far.json()["type"] == "urn:outlast:key-conflict"
    assert flow in near.text and flow not in far.text
