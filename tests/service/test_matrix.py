"""Who may call what: every route, with every scope, of every tenant, enumerated from the table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from outlast import Outlast
from outlast.model.api_token import Scope
from outlast.model.settings import ServiceSettings
from outlast.ops import workers as worker_ops
from outlast.ops.bridges import OUTBOX, BridgeReport, report_bridges
from outlast.service.route import ANY_TOKEN
from outlast.service.route_table import PUBLIC, ROUTES, Route
from tests.service.dashboard import samples as pages
from tests.service.serving import Served, bearer, serving
from tests.support import eventually

STREAM = "text/event-stream"

A_JOB = {
    "task": "t", "queue": "mail", "tenant": "acme", "args": "{}", "priority": 0,
    "max_attempts": 3, "max_crashes": 3,
}  # fmt: skip

# What a route is called with so that whoever may call it succeeds. A route that is missing here
# fails the test: nobody adds one without saying what it does for whom.
SAMPLES: dict[str, dict[str, Any]] = {
    "describe": {},
    "whoami": {},
    "enqueue_job": {"json": {"task": "t", "queue": "mail"}},
    "enqueue_jobs": {"json": {"jobs": [{"task": "t", "queue": "mail"}]}},
    "enqueue_flow": {"json": {"jobs": [{"task": "t", "queue": "mail", "name": "a"}]}},
    "read_job": {},
    "list_jobs": {},
    "count_jobs": {},
    "explain_job": {},
    "read_history": {},
    "read_result": {},
    "job_events": {"params": {"stay": 0.01}},
    "job_stream": {"params": {"stay": 0.01}},
    "all_events": {"params": {"stay": 0.01}},
    "cancel_job": {"json": {}},
    "redrive_job": {},
    "cancel_jobs": {"json": {"limit": 1, "task": "nothing"}},
    "redrive_jobs": {"json": {"limit": 1, "task": "nothing"}},
    "forget_job": {},
    "take_result": {},
    "reclaim_job": {},
    "reschedule_jobs": {"json": {"limit": 1, "task": "nothing", "delay": 1}},
    "prioritize_jobs": {"json": {"limit": 1, "task": "nothing", "priority": 1}},
    "move_jobs": {"json": {"limit": 1, "task": "nothing", "queue": "a", "to": "mail"}},
    "send_job_signal": {"json": {"value": 1}},
    "purge_jobs": {"json": {"limit": 1, "task": "nothing", "state": "dead"}},
    "read_flow": {},
    "list_flow_jobs": {},
    "cancel_flow": {"json": {}},
    "redrive_flow": {},
    "list_queues": {},
    "pause_queue": {"json": {"queue": "mail"}},
    "resume_queue": {"json": {"queue": "mail"}},
    "close_queue_breaker": {"json": {"queue": "mail"}},
    "keep_queue": {"json": {"queue": "mail", "keep": 60}},
    "list_schedules": {},
    "show_schedule": {"params": {"name": "sample"}},
    "create_schedule": {
        "json": {"name": "made", "job": {"task": "t", "queue": "mail"}, "every": 60}
    },
    "pause_schedule": {"json": {"name": "sample", "reason": "none"}},
    "resume_schedule": {"json": {"name": "sample"}},
    "run_schedule": {"json": {"name": "sample"}},
    "skip_schedule": {"json": {"name": "sample", "n": 2}},
    "change_schedule": {"json": {"name": "sample", "cron": "@daily", "tz": "Asia/Tokyo"}},
    "reset_schedule": {"json": {"name": "sample"}},
    "backfill_schedule": {
        "json": {"name": "sample", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T03:00:00Z"}
    },
    "delete_schedule": {"json": {"name": "sample"}},
    "list_lanes": {"params": {"queue": "mail"}},
    "limit_queue": {"json": {"queue": "mail", "changes": {"running": 9}}},
    "list_workers": {},
    "list_duties": {},
    "drain_worker": {"json": {"worker": "somebody"}},
    "undrain_worker": {"json": {"worker": "somebody"}},
    "dequeue": {"params": {"worker": "w", "tasks": "t", "queues": "mail"}},
    "flow_events": {},
    "poll_jobs": {"params": {"worker": "w", "tasks": "t", "queues": "mail", "wait": 0}},
    "leave_dequeue": {"params": {"worker": "w"}},
    "report_tasks": {"json": {"reports": []}},
    "keep_step": {"json": {"token": "1.e30.x", "name": "s"}},
    "read_prerequisites": {"json": {"token": "1.e30.x"}},
    "slow_lane_down": {"json": {"token": "1.e30.x", "seconds": 1}},
    "announce_schedules": {
        "json": {"schedules": [{"name": "declared", "spec": {"every": 60}, "job": A_JOB}]}
    },
    "login": {"json": {"token": "olt_wrong"}},
    "logout": {},
    "metrics": {},
    "livez": {},
    "readyz": {},
    "receive_webhook": {},
    "signal_link_page": {},
    "use_signal_link": {},
    **pages.SAMPLES,
}


def test_every_route_is_in_the_matrix() -> None:
    """A route that nobody thought of is found here."""
    assert {route.name for route in ROUTES} == set(SAMPLES)


def test_every_scope_but_the_public_one_is_a_scope() -> None:
    public = {route.name for route in ROUTES if route.scope is PUBLIC}
    allowed = {
        "login", "logout", "livez", "readyz", "login_page", "static_file", "receive_webhook",
        "signal_link_page", "use_signal_link",
    }  # fmt: skip
    assert public == allowed, "what anybody may call is a short list"
    assert {route.name for route in ROUTES if route.scope is ANY_TOKEN} == {"whoami"}
    named = [route.scope for route in ROUTES if route.scope not in {PUBLIC, ANY_TOKEN}]
    assert set(named) <= set(Scope)


GUARDED = [route for route in ROUTES if route.scope is not PUBLIC]


# A scope, a tenant and the queues of somebody who calls, and the token to do so.
Caller = tuple[Scope, str | None, list[str] | None, str]


@pytest.fixture(scope="module")
def everyone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[Caller]]]:
    """One service and its callers for all routes: each call is about a job of its own."""
    url = f"sqlite:///{tmp_path_factory.mktemp('matrix')}/outlast.db"
    patient = ServiceSettings(guesses=4 * len(GUARDED))  # each route is called with a wrong token
    with Outlast(url) as ol, serving(ol, patient) as served:
        ol.store.run(worker_ops.register, ol.worker().registration_row() | {"id": "somebody"})
        sample = BridgeReport(OUTBOX, "sample", "a sink", "sample", ("mail",))
        ol.store.run(report_bridges, [sample])
        limits = product(Scope, (None, "acme", "other"), (None, ["mail"], ["else"]))
        yield (
            served,
            [(*one, served.token(str(one[0]), tenant=one[1], queues=one[2])) for one in limits],
        )


# Another scope is refused whatever else a token is limited to: by the widest and the narrowest. An
# admin's token is limited as the others are: by every limit in the whole matrix alone.
WIDEST_AND_NARROWEST = [(None, None), ("acme", ["mail"])]


@pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "whole"]
)
@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
def test_a_route_serves_whom_it_says_and_nobody_else(
    everyone: tuple[Served, list[Caller]], route: Route, whole: bool
) -> None:
    """R145: route × scope × tenant × queue. Without a token 401, with another scope 403, for
    another tenant's or queue's job 404; for its own, or for everybody's token, no refusal."""
    served, callers = everyone
    for scope, tenant, queues, token in callers:
        enough = (scope, ANY_TOKEN, *([] if scope is not Scope.ADMIN else Scope))
        right = route.scope in enough and (route.also is None or route.also in enough)
        every_limit = right and (whole or scope == route.scope or route.also is not None)
        if not every_limit and (tenant, queues) not in WIDEST_AND_NARROWEST:
            continue
        status = call(served, route, token).status_code
        wanted = expected(route, right, tenant, queues)
        assert status in wanted, (scope, tenant, queues, status)
    assert call(served, route, None).status_code == 401
    assert call(served, route, "olt_" + "x" * 43).status_code == 401
    assert (
        call(served, route, served.token("admin")).status_code < 400
        or route.name in TOO_LATE | BY_JOB
    )


# What the sample job's state does not allow: these are told so, if they get so far.
TOO_LATE = {"redrive_job", "take_result"}
ALL_QUEUES = {
    "metrics",
    "drain_worker",
    "undrain_worker",
    *pages.ALL_QUEUES,
}  # these concern all of them
NAMED_QUEUE = {
    "enqueue_job", "enqueue_jobs", "enqueue_flow", "pause_queue", "resume_queue", "keep_queue",
    "close_queue_breaker", "list_lanes", "limit_queue", "dequeue", "poll_jobs", "move_jobs",
    "create_schedule", "announce_schedules",
    *pages.NAMED_QUEUE,
}  # fmt: skip
# What asks for a job's own token beside the caller's: the one shown here is nobody's.
BY_JOB = {"keep_step", "read_prerequisites", "slow_lane_down"}


def expected(route: Route, right: bool, tenant: str | None, queues: list[str] | None) -> set[int]:
    if not right or (route.everyone and tenant is not None):
        return {403}
    if route.name in ALL_QUEUES and queues is not None:
        return {403}
    if route.name in BY_JOB:
        return {403}
    if route.name in NAMED_QUEUE and queues == ["else"]:
        return {403}
    by_name = "name" in str(SAMPLES[route.name]) and "/schedules/" in route.path
    if ("{id}" in route.path or by_name) and (tenant == "other" or queues == ["else"]):
        return {404}
    return {200, 201, 202, 204, 303} | ({409} if route.name in TOO_LATE else set())


def call(served: Served, route: Route, token: str | None) -> Any:
    path = route.path
    if "{id}" in path:
        path = path.replace("{id}", subject(served.ol, route))
    path = path.replace("/signals/{name}", "/signals/go")
    if "/schedules" in path:
        make_schedule(served.ol)
    if "{token}" in path:
        path = path.replace("{token}", served.made_token("read")[1])
    if STREAM in route.media:  # it would go on for ever: how it begins is enough
        asked = {"headers": bearer(token), **SAMPLES[route.name]}
        with served.http.stream(route.method, path, **asked) as answer:
            return answer
    return served.call(route.method, path, token, **SAMPLES[route.name])


def subject(ol: Outlast, route: Route) -> str:
    """A fresh job (or a flow) of the tenant acme in the queue mail."""

    @ol.task(name="subject", queue="mail", tenant="acme")
    def subject(n: int) -> None: ...

    if "/flows/" in route.path:
        from outlast import chain

        flow = ol.enqueue(chain(subject.job(1), subject.job(2)))[0].flow
        assert flow is not None
        return flow
    job = subject.enqueue(1)
    if route.name == "forget_job":
        ol.cancel(job.id)
    return job.id


def make_schedule(ol: Outlast) -> None:
    """A schedule of the tenant acme in the queue mail; the one that was made by a call goes."""

    @ol.task(name="recurs", queue="mail", tenant="acme")
    def recurs(n: int) -> None: ...

    for name in {one.name for one in ol.schedules()}:
        ol.delete_schedule(name)
    ol.create_schedule("sample", recurs.job(1), every=3600)


def test_what_a_tenant_s_token_lists_is_its_own(served: Served) -> None:
    """R145: lists, counts and queues, for each tenant and for everybody's token."""
    for tenant, number in (("acme", 2), ("other", 3)):
        token = served.token("enqueue", tenant=tenant)
        jobs = [{"task": "t", "queue": f"of-{tenant}"} for _ in range(number)]
        assert served.post("/api/v1/jobs/batch", token, json={"jobs": jobs}).status_code == 201
    whole = served.token("read")  # counts are a snapshot, made perhaps before the jobs were
    eventually(lambda: served.get("/api/v1/counts", whole).json()["total"] == 5, timeout=20)
    for tenant, number, queues in (
        ("acme", 2, ["of-acme"]),
        ("other", 3, ["of-other"]),
        (None, 5, ["of-acme", "of-other"]),
        ("nobody", 0, []),
    ):
        token = served.token("read", tenant=tenant)
        assert len(served.get("/api/v1/jobs", token).json()["jobs"]) == number
        assert served.get("/api/v1/counts", token).json()["total"] == number
        found = served.get("/api/v1/queues", token).json()["queues"]
        assert [queue["name"] for queue in found] == queues


def test_what_a_tenant_changes_by_filter_is_its_own(served: Served) -> None:
    """R145: cancel and redrive everything, and the neighbour's jobs stand as they stood."""
    tokens = {name: served.token("admin", tenant=name) for name in ("acme", "other")}
    for token in tokens.values():
        served.post("/api/v1/jobs/batch", token, json={"jobs": [{"task": "t"}, {"task": "t"}]})
    assert served.post("/api/v1/jobs/cancel", tokens["acme"], json={}).json()["done"] == 2
    counts = served.get("/api/v1/jobs", tokens["other"]).json()["jobs"]
    assert [job["state"] for job in counts] == ["ready", "ready"]
    served.post("/api/v1/jobs/cancel", tokens["other"], json={})
    body = {"state": "cancelled"}
    assert served.post("/api/v1/jobs/redrive", tokens["acme"], json=body).json()["done"] == 2
    states = [job["state"] for job in served.get("/api/v1/jobs", tokens["other"]).json()["jobs"]]
    assert states == ["cancelled", "cancelled"]


def test_nobody_waits_for_another_tenant_s_job(served: Served) -> None:
    """R145: a follower would learn how its prerequisite ended, and what it gave."""
    theirs = served.post("/api/v1/jobs", served.token("enqueue", tenant="b"), json={"task": "t"})
    id = theirs.json()["id"]
    mine = served.token("enqueue", tenant="a")
    for path, body in (
        ("/api/v1/jobs", {"task": "t", "after": [id]}),
        ("/api/v1/flows", {"jobs": [{"task": "t", "after": [id.upper()]}]}),
        ("/api/v1/flows", {"flow": {"chain": [{"task": "t", "after": [id]}]}}),
    ):
        assert served.post(path, mine, json=body).status_code == 404, path
    assert served.post("/api/v1/jobs", mine, json={"task": "t", "after": []}).status_code == 201
