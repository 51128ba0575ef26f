"""What a receiver is told: how a job ended, once for each end, and nothing that is not for it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import pytest

from outlast import InvalidOption, Outlast, Permanent, Retry, Secret, tracing
from outlast.ops.enqueue import enqueue
from outlast.webhooks.webhook import Webhook, new_secret, verify
from tests.support import Database, aeventually
from tests.webhooks.receiver import Got, Receiver, answers
from tests.worker.working import ended, work

pytestmark = pytest.mark.kinds("sqlite")

SECRET = new_secret()
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def hook(ol: Outlast, receiver: Receiver) -> Webhook:
    at_once = Retry(max_attempts=50, base=0.01, cap=0.05)
    return ol.webhook("billing", url=receiver.url(), secret=SECRET, retry=at_once)


async def told(receiver: Receiver, number: int = 1) -> list[Got]:
    return await aeventually(lambda: receiver.got if len(receiver.got) >= number else [])


async def test_a_receiver_can_verify_know_again_and_follow_what_it_gets(
    ol: Outlast, receiver: Receiver, hook: Webhook
) -> None:
    """R128: signed on every attempt, by one id, with a number that rises, in the job's trace."""
    receiver.behave = lambda got: answers(200 if got.attempt > 3 else 503)

    @ol.task(tell=hook)
    async def add(a: int, b: int) -> int:
        return a + b

    tracing.continue_trace(TRACE)
    job = await add.using(tenant="größe", key="k").aenqueue(1, b=2)
    async with work(ol):
        got = await told(receiver, 4)
    job, (delivery,) = await ol.ajob(job.id), await ol.ajobs(task="billing")
    assert [one.attempt for one in got] == [1, 2, 3, 4]
    assert {verify(one.headers, one.body, SECRET).id for one in got} == {delivery.id}
    assert len({one.body for one in got}) == 1
    assert (delivery.tenant, delivery.queue) == ("größe", "webhooks")
    headers, message = got[0].headers, got[0].message
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("outlast/")
    assert headers["outlast-job"] == job.id
    assert headers["outlast-tenant"] == "gr%C3%B6%C3%9Fe"
    assert headers["traceparent"] == TRACE == job.trace
    shown = job.as_json()
    assert message == {
        "type": "job.succeeded",
        "timestamp": shown["finished_at"],
        "data": {
            "id": job.id, "task": "add", "queue": "default", "state": "succeeded", "attempt": 1,
            "tenant": "größe", "key": "k", "flow": None, "created_at": shown["created_at"],
            "started_at": shown["started_at"], "finished_at": shown["finished_at"], "result": 3,
        },
    }  # fmt: skip


async def test_every_end_is_told_once_and_secrets_never(
    ol: Outlast, receiver: Receiver, hook: Webhook
) -> None:
    """R126, R198: no arguments, no traceback, and an error without what it quotes."""

    @ol.task(tell=hook)
    async def charge(card: Annotated[str, Secret]) -> None:
        raise Permanent(f"{card} was refused")

    (dead,) = await ol.aenqueue(charge.job("4111-1111"))
    (cancelled,) = await ol.aenqueue(charge.using(delay=60).job("4222-2222"))
    await ol.acancel(cancelled.id, "not wanted")
    async with work(ol):
        got = await told(receiver, 2)
        await ended(ol, (await ol.ajobs(task="billing"))[0])
    by_job = {one.message["data"]["id"]: one.message for one in got}
    assert len(got) == len(by_job) == 2
    assert by_job[dead.id]["type"] == "job.dead"
    assert by_job[dead.id]["data"]["error"] == {
        "type": "outlast.model.errors.Permanent", "message": "*** was refused",
    }  # fmt: skip
    assert by_job[cancelled.id]["type"] == "job.cancelled"
    assert by_job[cancelled.id]["data"]["error"]["message"] == "not wanted"
    everything = b"".join(one.body for one in got)
    assert (
        b"4111" not in everything and b"4222" not in everything and b"Traceback" not in everything
    )


async def test_only_those_ends_are_told_that_it_is_for(ol: Outlast, receiver: Receiver) -> None:
    failures = ol.webhook("pager", url=receiver.url(), secret=SECRET, events=["dead"])

    @ol.task(tell=failures)
    async def work_out(well: bool) -> None:
        if not well:
            raise Permanent("no")

    good, bad = await ol.aenqueue(work_out.job(True), work_out.job(False))
    async with work(ol):
        got = await told(receiver)
        await ended(ol, good)
    assert [one.headers["outlast-job"] for one in got] == [bad.id]
    assert len(await ol.ajobs(task="pager")) == 1
    with pytest.raises(InvalidOption, match="leave out 'succeeded'"):
        work_out.using(on_success=failures).enqueue(True)


async def test_hooks_take_a_webhook_beside_calls(
    ol: Outlast, receiver: Receiver, hook: Webhook
) -> None:
    """As one of several, and with options of its own."""

    @ol.task
    async def note() -> None: ...

    await note.using(on_success=[note.job(), hook.using(queue="other", priority=9)]).aenqueue()
    async with work(ol):
        (got,) = await told(receiver)
    (delivery,) = await ol.ajobs(task="billing")
    assert (delivery.queue, delivery.priority, delivery.id) == ("other", 9, got.id)
    assert len(await ol.ajobs(task="note")) == 2
    await hook.using(tenant="acme").aenqueue("invoice.paid", {"amount": 7})
    async with work(ol):
        (_, free) = await told(receiver, 2)
    assert (free.message["type"], free.message["data"]) == ("invoice.paid", {"amount": 7})
    assert free.headers["outlast-tenant"] == "acme"
    assert "outlast-job" not in free.headers


async def test_a_result_that_is_too_long_is_told_of(
    ol: Outlast, receiver: Receiver, hook: Webhook
) -> None:
    @ol.task(tell=hook)
    async def much(number: int) -> str:
        return "x" * number

    short, long = await ol.aenqueue(much.job(16_000), much.job(17_000))
    async with work(ol):
        got = {one.headers["outlast-job"]: one for one in await told(receiver, 2)}
    assert len(got[short.id].message["data"]["result"]) == 16_000
    data = got[long.id].message["data"]
    assert "result" not in data
    assert data["result_bytes"] == 17_002
    assert data["result_at"] == f"/api/v1/jobs/{long.id}/result"
    assert len(got[long.id].body) < 1_000


async def test_a_result_that_is_kept_by_reference_is_told_of(
    database: Database, receiver: Receiver, tmp_path: Path
) -> None:
    """R128, R168: the delivery needs no more of it than its size."""
    with Outlast(database.url, schema=database.schema, blobs=f"file://{tmp_path}/blobs") as ol:
        hook = ol.webhook("billing", url=receiver.url(), secret=SECRET)

        @ol.task(tell=hook)
        async def much() -> str:
            return "x" * 200_000

        job = await much.aenqueue()
        async with work(ol):
            (got,) = await told(receiver, 1)
    data = got.message["data"]
    assert (data["id"], data["state"]) == (job.id, "succeeded")
    assert "result" not in data and data["result_bytes"] == 200_002


async def test_a_job_that_was_given_a_new_life_meanwhile_is_told_of_as_it_stands(
    ol: Outlast, receiver: Receiver, hook: Webhook
) -> None:
    go_on, lives = asyncio.Event(), []

    @ol.task(tell=hook)
    async def second_time_lucky() -> str:
        lives.append(1)
        if len(lives) == 1:
            raise Permanent("not yet")
        await go_on.wait()
        return "well"

    receiver.behave = lambda got: answers(200 if len(lives) > 1 else 503)
    async with work(ol):
        job = await second_time_lucky.aenqueue()
        await told(receiver)
        await ol.aretry(job.id)
        await aeventually(lambda: len(lives) == 2)
        (delivery,) = await ol.ajobs(task="billing")
        await ended(ol, delivery)
        last = receiver.of(delivery.id)[-1].message
        assert (last["type"], last["data"]["state"]) == ("job.dead", "running")
        assert not {"result", "error"} & set(last["data"])
        go_on.set()
        await aeventually(lambda: receiver.got[-1].message["type"] == "job.succeeded")


@pytest.mark.parametrize("data", [None, {"id": "forged"}])
async def test_nobody_can_forge_the_end_of_a_job(
    ol: Outlast, receiver: Receiver, hook: Webhook, data: Any
) -> None:
    """R198: types that begin with `job.` are about the job that the delivery comes after."""
    with pytest.raises(InvalidOption, match=r"'job\.'"):
        hook.enqueue("job.succeeded", data)

    @ol.task(name="billing_")
    async def stranger(type: str, data: Any = None) -> None: ...

    forged = stranger.job("job.succeeded", data).new_job()
    forged.task = "billing"

    (job,) = ol.store.run(enqueue, [forged])
    async with work(ol):
        now = await ended(ol, job)
    assert now.state == "dead"
    assert "needs the job that it reports on" in (now.error or {})["message"]
    assert receiver.got == []


@pytest.mark.parametrize(
    "said",
    [
        {"url": "ftp://shop.example.org"}, {"url": "file:///etc/passwd"}, {"url": "shop"},
        {"url": "http://"}, {"url": "https://ann:pass@shop.example.org"}, {"url": 7},
        {"url": "http://shop:99999"}, {"url": "http://shop/\r\nx: y"}, {"url": "http://[::1"},
        {"secret": "hunter2"}, {"secret": []}, {"timeout": 0}, {"timeout": None},
        {"timeout": float("inf")}, {"events": ()}, {"events": "dead"}, {"events": ["started"]},
        {"queue": ""}, {"retry": 5}, {"key": "k"}, {"name": ""},
    ],
    ids=str,
)  # fmt: skip
def test_a_webhook_that_cannot_be_is_refused_when_it_is_defined(ol: Outlast, said: Any) -> None:
    """R198: and what is wrong is told without quoting it."""
    given = {"name": "w", "url": "https://shop.example.org", "secret": SECRET, **said}
    with pytest.raises(InvalidOption) as refused:
        ol.webhook(given.pop("name"), **given)
    assert "hunter2" not in str(refused.value) and "pass@" not in str(refused.value)
    assert ol.webhooks == {} and ol.registry.names() == []


def test_a_name_is_of_one_webhook_or_task(ol: Outlast, hook: Webhook) -> None:
    """A module that is imported again is no clash."""
    with pytest.raises(InvalidOption, match="taken by another webhook"):
        ol.webhook("billing", url="https://elsewhere.example.org", secret=SECRET)
    with pytest.raises(InvalidOption, match="'billing' is taken"):
        ol.task(name="billing")(lambda: None)
    again = ol.webhook("billing", url=hook.endpoint.destination.url, secret=new_secret())
    assert ol.webhooks["billing"] is again


@pytest.mark.parametrize("tell", ["billing", [7], [None], lambda: None])
def test_only_a_webhook_can_be_told(ol: Outlast, tell: Any) -> None:
    @ol.task
    def add() -> None: ...

    with pytest.raises((InvalidOption, TypeError)):
        add.using(tell=tell).enqueue()
    assert ol.jobs() == []


def test_neither_where_nor_by_what_secret_is_shown(ol: Outlast, hook: Webhook) -> None:
    """R198: in whatever is printed of it."""
    shown = repr(
        [hook, hook.endpoint, hook.using(priority=1), ol.registry["billing"], hook.job("x")]
    )
    assert "<webhook billing>" in shown
    for word in (SECRET, hook.endpoint.destination.url, repr(hook.endpoint.keys[0])[2:-1]):
        assert word not in shown


def test_jobs_made_at_an_end_are_of_the_same_tenant(ol: Outlast) -> None:
    """R198: unless they say another."""

    @ol.task
    def note() -> None: ...

    @ol.task(tenant="ops")
    def page() -> None: ...

    calls = [note.job(), page.job(), note.using(tenant="x").job()]
    hooks = note.using(tenant="acme", on_success=calls).job().new_job().hooks
    assert [row["tenant"] for row in json.loads(hooks or "")["succeeded"]] == ["acme", "ops", "x"]
