"""Clients name a webhook of the program, and never an address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.remote import RemoteWorker
from outlast.webhooks.webhook import new_secret
from tests.service.serving import Served, serving
from tests.support import Processes, aeventually
from tests.webhooks.receiver import Receiver, answers
from tests.worker.working import ended, work

pytestmark = pytest.mark.kinds("sqlite")

JOBS, TRACE = "/api/v1/jobs", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def served(ol: Outlast, receiver: Receiver) -> Iterator[Served]:
    secret = new_secret()
    ol.webhook("billing", url=receiver.url(), secret=secret)
    ol.webhook("acmes", url=receiver.url("/acme"), secret=secret, tenant="acme")

    @ol.task
    async def add(a: int) -> int:
        return a

    with serving(ol) as running:
        yield running


async def test_a_client_is_told_by_a_name_in_one_trace_from_its_call_to_the_delivery(
    ol: Outlast, served: Served, receiver: Receiver
) -> None:
    """R128: of one job, of many, and of the jobs of a flow."""
    token = served.token("enqueue", tenant="acme")
    body = {"task": "add", "args": {"a": 1}, "tell": ["billing", "acmes"]}
    one = served.post(JOBS, token, json=body, headers={"traceparent": TRACE})
    assert one.status_code == 201, one.text
    async with work(ol):
        await aeventually(lambda: len(receiver.got) == 2)
        assert {got.headers["traceparent"] for got in receiver.got} == {TRACE}
        assert {got.headers["outlast-job"] for got in receiver.got} == {one.json()["id"]}
        assert {got.headers["outlast-tenant"] for got in receiver.got} == {"acme"}
        assert {got.path for got in receiver.got} == {"/hooks", "/acme"}
        body["tell"] = ["billing"]
        served.post(f"{JOBS}/batch", token, json={"jobs": [body, body]}).raise_for_status()
        chain = {"flow": {"chain": [body, {**body, "tell": []}]}}
        served.post("/api/v1/flows", token, json=chain).raise_for_status()
        await aeventually(lambda: len(receiver.got) == 5)
        for job in await ol.ajobs():
            await ended(ol, job)
    assert len(receiver.got) == 5


@pytest.mark.parametrize(
    ("limits", "tell", "status"),
    [
        ({"tenant": "acme"}, ["nobody"], 422),
        ({"tenant": "acme"}, ["add"], 422),
        ({"tenant": "acme"}, ["http://169.254.169.254/"], 422),
        ({"tenant": "acme"}, [{"url": "http://127.0.0.1/"}], 422),
        ({"tenant": "acme"}, "billing", 422),
        ({"tenant": "acme"}, ["billing"] * 11, 422),
        ({"tenant": "other"}, ["acmes"], 422),
        ({"tenant": "acme", "queues": ["default"]}, ["billing"], 403),
        ({"tenant": "acme", "queues": ["default", "webhooks"]}, ["billing"], 201),
        ({}, ["acmes"], 201),
    ],
)
def test_a_client_reaches_no_webhook_but_those_that_are_for_it(
    served: Served, ol: Outlast, limits: dict[str, object], tell: object, status: int
) -> None:
    """R198: no address, no task, none of another tenant, none whose queue is out of reach."""
    token = served.token("enqueue", **limits)
    answer = served.post(JOBS, token, json={"task": "add", "args": {"a": 1}, "tell": tell})
    assert answer.status_code == status, answer.text
    assert len(ol.jobs()) == (status == 201)


async def test_a_worker_far_from_the_database_delivers_too(
    ol: Outlast, served: Served, receiver: Receiver, tmp_path: Path
) -> None:
    """R128, R142: what it tells of it reads from the server; when to come back it tells it."""
    receiver.behave = lambda got: answers(200 if got.attempt > 1 else 429, retry_after="1")
    token = served.token("work", "enqueue")
    body = {"task": "add", "args": {"a": 7}, "tell": ["billing"]}
    sent = served.post(JOBS, token, json=body, headers={"traceparent": TRACE}).json()
    async with RemoteWorker(served.url, token, ol, concurrency=2, grace=1.0, spool=tmp_path):
        await aeventually(lambda: len(receiver.got) == 2, timeout=20)
        (delivery,) = await ol.ajobs(task="billing")
        await ended(ol, delivery)
    first, second = receiver.got
    assert second.at - first.at >= 1.0
    assert first.id == second.id == delivery.id
    assert first.message["data"]["result"] == 7
    assert {first.headers["outlast-job"], second.headers["outlast-job"]} == {sent["id"]}
    assert first.headers["traceparent"] == TRACE


def test_the_command_line_names_them_too(
    processes: Processes, ol: Outlast, receiver: Receiver, tmp_path: Path
) -> None:
    """And says what to do where none is known."""
    env = {
        "OUTLAST_URL": ol.store.address.url,
        "OUTLAST_SCHEMA": ol.store.address.schema,
        "BILLING_URL": receiver.url(),
        "BILLING_SECRET": new_secret(),
    }
    app = ["--app", "tests.webhooks.app:ol"]
    without = "from outlast import Outlast\nol = Outlast()\n@ol.task\ndef give_up(): ..."
    (tmp_path / "plain.py").write_text(without)
    for words, told in (
        (["--tell", "billing"], "The option tell needs --app"),
        (
            [*app, "--tell", "http://x"],
            "The option tell names no webhook of the app: 'http://x'",
        ),
        (
            ["--app", "plain:ol", "--tell", "billing"],
            "The option tell names no webhook of the app: 'billing'",
        ),
    ):
        refused = processes.python("outlast", "enqueue", "give_up", *words, env=env)
        assert refused.wait(30.0) == 1
        assert told in refused.output()
    assert ol.jobs() == []
