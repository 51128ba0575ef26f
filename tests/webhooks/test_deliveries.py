"""A receiver may do what it likes: jobs and their flows go on, and what it may yet take is sent
again."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any

import pytest

from outlast import Job, Outlast, Retry, State, chain
from outlast.webhooks.delivery import _certificates
from outlast.webhooks.webhook import Webhook, new_secret
from tests.support import aeventually
from tests.webhooks.receiver import Got, Receiver, answers, drips, hangs, hangs_up
from tests.worker.working import SLACK, ended, work

SECRET = new_secret()
AT_ONCE = Retry(max_attempts=1000, base=0.01, cap=0.05, jitter=0.0)
HEAD = "HTTP/1.1 {} So\r\ncontent-length: 1000000\r\n\r\n"


def hook_of(ol: Outlast, receiver: Receiver, name: str = "billing", **said: Any) -> Webhook:
    said = {"retry": AT_ONCE, "timeout": 30.0, **said}
    return ol.webhook(name, url=receiver.url(), secret=SECRET, **said)


async def delivery_of(ol: Outlast) -> Job:
    return await aeventually(lambda: next(iter(ol.jobs(task="billing")), None))  # type: ignore[return-value]


async def test_a_failing_receiver_changes_no_job_and_delays_no_stage(
    ol: Outlast, receiver: Receiver
) -> None:
    """R127, R126: twenty times 500, then connections refused, then well: the job has succeeded
    once, its flow went on at once, and the delivery arrives."""
    hook = hook_of(ol, receiver)

    @ol.task(tell=hook)
    async def first() -> int:
        return 7

    @ol.task
    async def second() -> None: ...

    receiver.behave = lambda got: answers(500, "not today")
    async with work(ol):
        one, two = await ol.aenqueue(chain(first.job(), second.job()))
        two = await ended(ol, two)
        one, delivery = await ol.ajob(one.id), await delivery_of(ol)
        assert (one.state, one.result, two.state) == (State.SUCCEEDED, 7, State.SUCCEEDED)
        assert one.finished_at and two.started_at and not delivery.final
        assert two.started_at - one.finished_at < timedelta(seconds=SLACK)
        await aeventually(lambda: len(receiver.got) >= 20)
        receiver.close()
        await aeventually(lambda: "cannot be reached" in said(ol, delivery))
        receiver.behave = lambda got: answers(204)
        receiver.open()
        delivered = await ended(ol, delivery)
    assert (delivered.state, delivered.result) == (State.SUCCEEDED, {"status": 204})
    assert delivered.attempt > 21
    assert await ol.ajob(one.id) == one
    assert [got.id for got in receiver.got] == [delivery.id] * len(receiver.got)


def said(ol: Outlast, job: Job) -> str:
    return str((ol.job(job.id).error or {}).get("message"))


TRIED_AGAIN = {
    "408": answers(408), "429": answers(429), "500": answers(500), "502": answers(502),
    "503": answers(503, retry_after="0"), "599": answers(599), "silent": hangs,
    "hangs up": hangs_up, "half a head": drips("HTTP/1.1 200 OK\r\nx: "),
}  # fmt: skip
TIMEOUTS = {"silent": 1.0, "half a head": 1.0}
GIVEN_UP = {
    **{str(moved): answers(moved, location="/elsewhere") for moved in (301, 302, 307, 308)},
    **{str(status): answers(status) for status in (304, 401, 403, 404, 410)},
    "400": answers(400, "no\0 such\nfield"),
    "422": answers(422, "x" * 90_000),
}


@pytest.mark.kinds("sqlite")
async def test_what_may_change_is_tried_again_and_what_will_not_is_given_up(
    ol: Outlast, receiver: Receiver
) -> None:
    """R127: 5xx, 429, 408, silence and broken connections; no other 4xx, and no redirect, which is
    not followed either."""
    cases = TRIED_AGAIN | GIVEN_UP
    hooks = [hook_of(ol, receiver, case, timeout=TIMEOUTS.get(case, 30.0)) for case in cases]

    def at_first(got: Got) -> Any:
        return cases[got.message["data"]] if got.attempt == 1 else answers(200)

    receiver.behave = at_first
    async with work(ol, concurrency=len(cases)):
        jobs = await ol.aenqueue(*[hook.job("probe", hook.name) for hook in hooks])
        for case, job in zip(cases, jobs, strict=True):
            now = await ended(ol, job)
            if case in TRIED_AGAIN:
                assert (now.state, now.attempt >= 2) == ("succeeded", True), case
                continue
            assert (now.state, now.attempt, len(receiver.of(job.id))) == ("dead", 1, 1), case
            assert now.error is not None
            assert now.error["type"].endswith("Permanent")
            assert f"{case} answered {case}" in now.error["message"]
            assert len(now.error["message"]) < 600
    assert {got.path for got in receiver.got} == {"/hooks"}
    assert "no  such field" in said(ol, jobs[list(cases).index("400")])


@pytest.mark.kinds("sqlite")
async def test_a_receiver_says_when_to_come_back_and_is_believed_within_bounds(
    ol: Outlast, receiver: Receiver
) -> None:
    """R127: seconds or a date, an hour at most; it is a failure all the same."""
    in_a_while = format_datetime(datetime.now(UTC) + timedelta(seconds=1000), usegmt=True)
    waits = {
        "120": 120, in_a_while: 990, "999999999": 3600, "9" * 400: 3600,
        "1e9": 60, "-5": 60, "soon": 60, "": 60,
    }  # fmt: skip
    hook = hook_of(ol, receiver, retry=Retry(max_attempts=9, base=60.0, jitter=0.0))
    receiver.behave = lambda got: answers(429, retry_after=got.message["data"])
    async with work(ol):
        jobs = await ol.aenqueue(*[hook.job("probe", said) for said in waits])
        await aeventually(lambda: ol.counts()["scheduled"] == len(jobs))
    for (told, wait), job in zip(waits.items(), jobs, strict=True):
        now = await ol.ajob(job.id)
        assert now.failures == 1
        assert wait - 30 < (now.run_at - now.created_at).total_seconds() < wait + 30, told


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    ("behaviour", "timeout", "told"),
    [
        (drips("HTTP/1.1 200 OK\r\nx: "), 0.4, "did not respond within 0.4 s"),
        (drips(HEAD.format(500)), 1.0, "answered 500: x"),
        (drips(HEAD.format(200)), 60.0, None),
        (hangs, 0.4, "did not respond within 0.4 s"),
    ],
    ids=["head", "bad body", "good body", "nothing"],
)
async def test_a_receiver_that_drips_for_ever_is_cut_at_the_timeout(
    ol: Outlast, receiver: Receiver, behaviour: Any, timeout: float, told: str | None
) -> None:
    """R128: a slow receiver holds a delivery for its time and no longer; one whose good word has
    come holds it no more."""
    hook = hook_of(ol, receiver, timeout=timeout, max_attempts=1)
    receiver.behave = lambda got: behaviour
    async with work(ol):
        job = await hook.aenqueue("probe", 1)
        now = await ended(ol, job)
    assert now.state == ("dead" if told else "succeeded")
    assert (told or "None") in said(ol, now)
    assert now.started_at and now.finished_at
    assert (now.finished_at - now.started_at).total_seconds() < 1.0 + SLACK


def test_certificates_are_checked() -> None:
    """R198: of whoever answers to the receiver's name."""
    how = _certificates()
    assert how.check_hostname
    assert how.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.kinds("sqlite")
async def test_silent_receivers_leave_a_worker_of_another_queue_alone(
    ol: Outlast, receiver: Receiver
) -> None:
    """R127: deliveries have a queue of their own; whose worker they fill is for its operator to
    say."""
    hook = hook_of(ol, receiver)

    @ol.task(tell=hook)
    async def quick() -> None: ...

    receiver.behave = lambda got: hangs
    async with (
        work(ol, queues="default", concurrency=1),
        work(ol, queues="webhooks", concurrency=2, grace=0.1) as worker,
    ):
        await ol.aenqueue(*[quick.job()] * 5)
        await aeventually(lambda: len(receiver.got) == 2)
        began = monotonic()
        last = await quick.aenqueue()
        assert (await ended(ol, last)).state == "succeeded"
        assert monotonic() - began < SLACK
        worker.stop()
        worker.stop()
    waiting = await ol.ajobs(queue="webhooks")
    assert {job.state for job in waiting} == {State.READY}, "put back, not failed"


@pytest.mark.kinds("sqlite")
async def test_a_silent_receiver_takes_one_slot_of_a_process_and_not_all(
    ol: Outlast, receiver: Receiver
) -> None:
    """R127: after the first have waited in vain, one at a time asks; the others fail at once, and
    other jobs of the same worker have its slots. When it is well, all are delivered."""
    hook = hook_of(ol, receiver, timeout=0.5)

    @ol.task
    async def quick() -> None: ...

    receiver.behave = lambda got: hangs
    async with work(ol, concurrency=4):
        jobs = await ol.aenqueue(*[hook.job("probe", n) for n in range(12)])
        await aeventually(lambda: any("a moment ago" in said(ol, job) for job in jobs))
        for job in await ol.aenqueue(*[quick.job()] * 20):
            assert (await ended(ol, job)).state == "succeeded"
        receiver.behave = lambda got: answers(200)
        for job in jobs:
            assert (await ended(ol, job, timeout=20.0)).state == "succeeded"
    assert {got.message["data"] for got in receiver.got} == set(range(12))


@pytest.mark.kinds("sqlite")
async def test_a_delivery_can_be_cancelled_and_redriven(ol: Outlast, receiver: Receiver) -> None:
    """R124: it is a job like any other."""
    hook = hook_of(ol, receiver)
    receiver.behave = lambda got: hangs
    async with work(ol):
        job = await hook.aenqueue("probe")
        await aeventually(lambda: receiver.got)
        await ol.acancel(job.id)
        assert (await ended(ol, job)).state == "cancelled"
        receiver.behave = lambda got: answers(200)
        await ol.aretry(job.id)
        assert (await ended(ol, job)).state == "succeeded"
    assert {got.id for got in receiver.got} == {job.id}
