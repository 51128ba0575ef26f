"""Offers over a stream: what is sent, what comes back, and what becomes of the rest."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import weakref
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pytest

from outlast import Job, Outlast, State
from outlast.model.worker_names import is_offer
from outlast.ops import offer as ops
from outlast.ops.claim import PendingQueues
from outlast.service.dequeue import credit, shared_poll
from outlast.service.dequeue import stream as streams
from outlast.service.dequeue.dispatcher import Dispatcher
from outlast.service.streaming import JsonLines
from outlast.store import Store
from outlast.worker.pending_queues import read_pending
from outlast.worker.poller import Poller
from tests.service.serving import Served, serving
from tests.service.streaming import QUICK, REPORTS, Streamed, opened, report, said, statuses
from tests.support import aeventually, eventually, rounds

SLACK = 6.0  # seconds that a loaded machine may take on top


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol, QUICK) as running:
        yield running


@pytest.fixture
def patient(ol: Outlast) -> Iterator[Served]:
    """One whose offers hold for a minute: what comes back sooner was put back."""
    with serving(ol, replace(QUICK, offer_lease=60.0, remote_lease=60.0)) as running:
        yield running


@pytest.fixture
def token(served: Served) -> str:
    return served.token("work", name="hand")


def enqueued(ol: Outlast, number: int, size: int = 0, **options: Any) -> list[Job]:
    @ol.task(name="work", **options)
    def work(n: int, ballast: str = "") -> None: ...

    return ol.enqueue(*[work.job(n, "x" * size) for n in range(number)])


def back(ol: Outlast, jobs: list[Job]) -> bool:
    """All of them can be claimed, and nothing was charged for it."""
    now = [ol.job(job.id) for job in jobs]
    assert not any(job.crashes or job.failures for job in now)
    return all(job.state is State.READY and job.attempt == 0 for job in now)


def wait_until_back(ol: Outlast, jobs: list[Job]) -> None:
    told = lambda: str([ol.job(job.id) for job in jobs])  # noqa: E731
    eventually(lambda: back(ol, jobs), QUICK.offer_lease + SLACK, message=told)


def test_an_offer_is_a_claim_that_the_first_renewal_accepts(
    served: Served, ol: Outlast, token: str
) -> None:
    """R039, R042: the row says at every moment who has the job."""
    [job] = enqueued(ol, 1)
    with opened(served, token) as stream:
        hello = stream.frame("hello")
        assert (hello["lease"], hello["offer_lease"], hello["credit"]) == (2.0, 1.0, 5)
        [offer] = stream.offers(1)
        assert (offer["id"], offer["task"], offer["attempt"], offer["fence"]) == (
            job.id,
            "work",
            1,
            1,
        )
        offered = ol.job(job.id)
        assert offered.state is State.RUNNING
        assert is_offer(offered.worker or "")
        assert statuses(report(served, token, said(offer, "renew"))) == ["ok"]
        assert ol.job(job.id).worker == hello["worker"]
        answers = report(served, token, said(offer, "complete", result='{"done": true}'))
        assert statuses(answers) == ["ok"]
    ended = ol.job(job.id)
    assert (ended.state, ended.result, ended.attempt) == (State.SUCCEEDED, {"done": True}, 1)
    assert hello["worker"] in [worker.id for worker in ol.workers()]


def test_renewals_leave_an_offer_alone_that_is_on_its_way(
    patient: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are before the response to the claim is received."""
    desk = patient.app.service.dispatcher
    eventually(desk.is_open.is_set, 20.0)
    run, renewals = desk.steady.arun, desk._leases.loops[0]
    on_time: set[Any] = {ops.offer, ops.finish_hold_and_claim}

    async def run_slowly(operation: Any, *args: Any) -> Any:
        found = await run(operation, *args)
        if operation in on_time:
            on_time.remove(operation)
            for _ in range(4):
                passes = renewals.passes
                desk._leases.renew_now()
                await aeventually(lambda passes=passes: renewals.passes > passes)
        return found

    enqueued(ol, 2)
    monkeypatch.setattr(desk.steady, "arun", run_slowly)
    token = patient.token("work")
    with opened(patient, token, credit=1) as stream:
        [first] = stream.offers(1)
        ends = [said(first, "renew"), said(first, "complete")]
        assert statuses(report(patient, token, *ends)) == ["ok", "ok"]
        [second] = stream.offers(1)
    assert (first["fence"], second["fence"]) == (1, 1)
    assert desk.counts["released"] == 0
    assert not on_time


def test_no_more_is_offered_than_the_worker_can_hold(
    served: Served, ol: Outlast, token: str
) -> None:
    """R142: what it puts down makes room, whoever heard of it."""
    enqueued(ol, 5)
    with opened(served, token, credit=2) as stream:
        first, second = stream.offers(2)
        report(served, token, said(first, "renew"), said(second, "renew"))
        assert ol.counts()["ready"] == 3
        report(served, token, said(first, "complete"))
        [third] = stream.offers(1)
        report(served, token, said(third, "renew"))
        with serving(ol, QUICK) as other:  # a report that another server takes
            report(other, token, said(second, "release"))
        [_] = stream.offers(1)


def test_a_worker_in_a_hurry_is_offered_more_than_it_can_hold(
    patient: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R142: as many as it said beside its last report."""
    monkeypatch.setattr(credit, "PREFETCH_FOR_S", 60.0)
    token = patient.token("work")
    enqueued(ol, 8)
    with opened(patient, token, credit=2) as stream:
        held = stream.offers(2)
        hurry(patient, token, 3, *held)
        held += stream.offers(3)
        assert ol.counts()["ready"] == 3
        report(patient, token, *[said(job, "complete") for job in held[:3]])
        time.sleep(0.3)
        assert ol.counts()["ready"] == 3, "it said nothing of it any more"
        report(patient, token, said(held[3], "complete"))
        [_] = stream.offers(1)


def test_that_a_worker_is_in_a_hurry_is_soon_forgotten(
    patient: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R142: its later words may go to another server."""
    monkeypatch.setattr(credit, "PREFETCH_FOR_S", 0.0)
    token = patient.token("work")
    enqueued(ol, 5)
    with opened(patient, token, credit=2) as stream:
        hurry(patient, token, 3, *stream.offers(2))
        time.sleep(0.3)
        assert ol.counts()["ready"] == 3


@pytest.mark.kinds("sqlite")
def test_what_is_asked_for_at_once_is_no_more_than_the_worker_can_hold(ol: Outlast) -> None:
    """R142: by its stream and by reports of its, from several queues."""
    desk = Dispatcher(ol, QUICK, ol.store)
    asker = streams.RemoteWorkerInfo("remote-w", "host", 1, None, ("work",), None, credit=4)
    stream = streams.WorkerStream(desk, asker, JsonLines(), b"key")
    for queue in "abc":
        stream.notify(queue)
    asked = [stream.piggyback_request(0) for _ in range(3)]
    assert [one.limit for one in asked if one] == [2, 2]
    for one in filter(None, asked):
        stream.piggyback_failed(one)
    assert stream.piggyback_request(0) is not None


@pytest.mark.kinds("sqlite")
async def test_streams_that_look_at_once_look_together(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R142: also where the database takes longer than a look is good for."""
    monkeypatch.setattr(shared_poll, "POLL_VALID_S", -1.0)
    desk = Dispatcher(ol, QUICK, ol.store)
    looking = asyncio.create_task(desk.shared_poll.latest())
    await asyncio.sleep(0)
    assert not looking.done()
    assert await desk.shared_poll.latest() is await looking
    assert await desk.shared_poll.latest() is not await looking


@pytest.mark.kinds("sqlite")
async def test_a_look_that_began_too_early_is_not_shared(ol: Outlast) -> None:
    """R142: jobs may have been enqueued since; those who come then share the next one."""
    desk = Dispatcher(ol, QUICK, ol.store)
    early = asyncio.create_task(desk.shared_poll.latest())
    await asyncio.sleep(0)
    desk.shared_poll.outdate()
    late = [asyncio.create_task(desk.shared_poll.latest()) for _ in range(3)]
    first, *others = await asyncio.gather(*late)
    assert first is not await early
    assert all(one is first for one in others)


async def test_a_prefetch_that_expires_during_a_poll_asks_for_no_job(ol: Outlast) -> None:
    """R142: a claim of fewer than no jobs is refused by PostgreSQL, and takes all on SQLite."""
    enqueued(ol, 3)
    desk = Dispatcher(ol, QUICK, ol.store)
    asker = streams.RemoteWorkerInfo("remote-w", "host", 1, None, ("work",), None, credit=4)
    stream = streams.WorkerStream(desk, asker, JsonLines(), b"key")

    async def slow(store: Store, queues: Collection[str] | None) -> PendingQueues:
        stream.credit.set_prefetch(0)
        return await read_pending(store, queues)

    stream.poller = Poller(None, desk.settings, slow)
    stream.credit.requested = 6
    stream.credit.set_prefetch(4)
    assert stream.credit.free == 2
    assert await stream._offer() is None
    assert ol.counts()["ready"] == 3
    await desk.steady.aclose()


def hurry(served: Served, token: str, ahead: int, *held: dict[str, Any]) -> None:
    reports = [said(job, "renew") for job in held]
    answer = served.post(REPORTS, token, json={"reports": reports, "ahead": ahead})
    assert statuses(answer.json()["reports"]) == ["ok"] * len(held)


def test_a_worker_that_comes_back_is_known_to_hold_what_it_held(
    served: Served, ol: Outlast, token: str
) -> None:
    """R142"""
    enqueued(ol, 3)
    with opened(served, token, credit=2) as stream:
        held = stream.offers(2)
        report(served, token, *[said(job, "renew") for job in held])
    with opened(served, token, credit=2) as stream:
        stream.frame("hello")
        time.sleep(0.3)
        assert ol.counts()["ready"] == 1
        report(served, token, said(held[0], "complete"))
        [_] = stream.offers(1)


def test_a_worker_that_comes_back_while_its_old_stream_is_open_holds_what_it_held(
    patient: Served, ol: Outlast
) -> None:
    """R142: the end of the old stream gives no room, and later reports of its jobs do."""
    desk, token = patient.app.service.dispatcher, patient.token("work")
    enqueued(ol, 3)
    with opened(patient, token, credit=2) as old:
        held = old.offers(2)
        report(patient, token, *[said(job, "renew") for job in held])
        new = opened(patient, token, credit=2)
        new.frame("hello")
    with new:
        eventually(lambda: len(desk.streams) == 1)
        [stream] = desk.streams
        assert (stream.credit.free, ol.counts()["ready"]) == (0, 1)
        report(patient, token, said(held[0], "complete"))
        [_] = new.offers(1)
        report(patient, token, said(held[1], "complete"))
    eventually(lambda: not desk.streams and not len(desk.book))
    assert not desk.book._by_token


def test_an_offer_that_another_server_took_for_accepted_is_forgotten_with_its_streams(
    patient: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R142: the worker's next stream learns of it from the database."""
    monkeypatch.setattr(streams, "RECONCILE_INTERVAL_S", 60.0)
    desk, token = patient.app.service.dispatcher, patient.token("work")
    enqueued(ol, 1)
    with opened(patient, token) as old:
        [offer] = old.offers(1)
        with serving(ol, replace(QUICK, remote_lease=60.0)) as other:
            assert statuses(report(other, token, said(offer, "renew"))) == ["ok"]
        with opened(patient, token) as new:
            new.frame("hello")
    eventually(lambda: not desk.streams and not len(desk.book))
    assert ol.job(offer["id"]).state is State.RUNNING


@pytest.mark.kinds("sqlite")
def test_a_stream_that_never_began_is_kept_by_nobody(ol: Outlast) -> None:
    """R142: one for which there is no slot is made for each request, and not run."""
    desk = Dispatcher(ol, QUICK, ol.store)
    asker = streams.RemoteWorkerInfo("remote-w", "host", 1, None, ("work",), None, credit=4)
    stream = weakref.ref(streams.WorkerStream(desk, asker, JsonLines(), b"key"))
    gc.collect()
    assert stream() is None


def test_what_nobody_accepts_comes_back_unspent(served: Served, ol: Outlast, token: str) -> None:
    """R039, R066: and its stream ends, or one that never accepts would hoard them for ever."""
    jobs = enqueued(ol, 2)
    with opened(served, token) as stream:
        stream.offers(2)
        assert stream.frame("bye")["reason"] == "an offer was not accepted in time"
    wait_until_back(ol, jobs)
    [record, *_] = ol.history(jobs[0].id)[0]
    assert record.outcome == "released"


# The line breaks


def cut_before_send(served: Served, token: str) -> None:
    """The request is on its way, or just there."""
    stream = Streamed(served.url, token)
    time.sleep(random.uniform(0.0, 0.02))
    stream.reset()


def cut_during_send(served: Served, token: str) -> None:
    """Part of the offers has come."""
    stream = Streamed(served.url, token, buffer=4096)
    stream.head()
    stream.frame("hello")
    assert stream.socket.recv(10_000)
    stream.reset()


def cut_before_read(served: Served, token: str) -> None:
    """The server has sent all, and nobody reads it."""
    stream = Streamed(served.url, token)
    eventually(lambda: served.ol.counts()["running"] == 5)
    stream.reset()


CUTS = {"before": cut_before_send, "during": cut_during_send, "unread": cut_before_read}


@pytest.mark.parametrize("moment", CUTS)
def test_a_line_that_breaks_costs_no_job_anything(patient: Served, moment: str) -> None:
    """R039: before, during or after the send: all five are put back, and wait for no lease."""
    break_the_line(patient, moment, times=2)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("moment", CUTS)
def test_a_line_that_breaks_200_times_costs_no_job_anything(patient: Served, moment: str) -> None:
    """R039"""
    break_the_line(patient, moment, times=200)


def break_the_line(served: Served, moment: str, times: int) -> None:
    token = served.token("work")
    jobs = enqueued(served.ol, 5, size=900_000 if moment == "during" else 0)
    for _ in rounds(times, f"cut {moment}"):
        CUTS[moment](served, token)
        wait_until_back(served.ol, jobs)
    eventually(lambda: not served.app.service.dispatcher.streams)
    with opened(served, token) as stream:
        assert {job["id"] for job in stream.offers(5)} == {job.id for job in jobs}


def test_a_dequeue_that_is_cancelled_at_any_moment_leaves_no_job_behind(
    patient: Served,
) -> None:
    """R021"""
    cancel_at_random(patient, times=20)


@pytest.mark.campaign
def test_a_dequeue_that_is_cancelled_at_100_moments_leaves_no_job_behind(
    patient: Served,
) -> None:
    """R021"""
    cancel_at_random(patient, times=100)


def cancel_at_random(served: Served, times: int) -> None:
    token = served.token("work")
    jobs = enqueued(served.ol, 5)
    for _ in rounds(times, "cancelled"):
        with Streamed(served.url, token):
            time.sleep(random.uniform(0.0, 0.03))
    wait_until_back(served.ol, jobs)
    desk = served.app.service.dispatcher
    eventually(lambda: not desk.streams and not len(desk.book))
    assert not desk.book._by_token


def test_one_who_reads_nothing_is_not_waited_for(
    served: Served, ol: Outlast, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R039: what is on the line is bounded, and goes back with its offer lease; and that is told,
    though not to the one who cannot hear it."""
    jobs = enqueued(ol, 5, size=900_000)
    stream = Streamed(served.url, token, buffer=4096)
    eventually(lambda: ol.counts()["running"] == 5)
    wait_until_back(ol, jobs)
    eventually(lambda: not served.app.service.dispatcher.streams)
    eventually(lambda: "the worker does not read" in caplog.text)
    stream.reset()


# What is said on a stream


def test_a_quiet_stream_shows_signs_of_life_and_ends_in_good_order(ol: Outlast) -> None:
    """R144"""
    with serving(ol, replace(QUICK, keep_alive=0.1, stream_life=1.0)) as served:
        token = served.token("work")
        with opened(served, token) as stream:
            stream.frame("hello")
            assert stream.line() == b"\n"
            assert "maximum lifetime" in stream.frame("bye")["reason"]
            assert stream.ends(within=5)
        with opened(served, token, accept="text/event-stream") as stream:
            assert stream.line() == b"event: hello\n"
            assert stream.line().startswith(b"data: {")
            assert stream.line() == b"\n"
            assert stream.line().startswith(b":")


def test_a_cancel_is_told_at_the_next_renewal_which_is_asked_for_at_once(
    served: Served, ol: Outlast, token: str
) -> None:
    """R022"""
    [job] = enqueued(ol, 1)
    with opened(served, token) as stream:
        [offer] = stream.offers(1)
        report(served, token, said(offer, "renew"))
        ol.cancel(job.id)
        if ol.store.can_notify:
            stream.frame("renew")
        assert report(served, token, said(offer, "renew"))[0]["cancel"]
        report(served, token, said(offer, "fail", how="cancelled"))
    assert ol.job(job.id).state is State.CANCELLED


def test_a_revoked_token_closes_the_stream(served: Served, ol: Outlast) -> None:
    """R201: within five seconds; what it was offered goes back."""
    jobs = enqueued(ol, 2)
    secret, id = served.made_token("work")
    with opened(served, secret) as stream:
        offers = stream.offers(2)
        report(served, secret, *[said(offer, "renew") for offer in offers])
        served.revoke(id)
        assert stream.ends(within=5 + SLACK)
    empty = {"reports": list[str]()}
    eventually(lambda: served.post(REPORTS, secret, json=empty).status_code == 401)
    assert not any(ol.job(job.id).final for job in jobs)


def test_goodbye_puts_back_what_is_left(served: Served, ol: Outlast, token: str) -> None:
    jobs = enqueued(ol, 2)
    with opened(served, token) as stream:
        offers = stream.offers(2)
        report(served, token, *[said(offer, "renew") for offer in offers])
        left = served.call("DELETE", "/api/v1/dequeue?worker=hand", token)
        assert left.json() == {"released": 2}
        assert stream.frame("bye")
    wait_until_back(ol, jobs)  # a claim that was under way is withdrawn after the goodbye
    assert [worker.id for worker in ol.workers() if not is_offer(worker.id)] == []


# Who is given what


def test_a_worker_is_offered_what_it_knows_and_its_token_reaches(
    served: Served, ol: Outlast
) -> None:
    """R145, R043: of its tenant, its queues and its tasks, and nothing else."""

    @ol.task
    def work() -> None: ...

    @ol.task
    def other() -> None: ...

    mine = work.using(tenant="a", queue="q").enqueue()
    ol.enqueue(
        work.using(tenant="b", queue="q").job(),
        work.using(tenant="a", queue="r").job(),
        other.using(tenant="a", queue="q").job(),
    )
    token = served.token("work", tenant="a", queues=["q"])
    with opened(served, token) as stream:
        assert [job["id"] for job in stream.offers(1)] == [mine.id]
        time.sleep(0.3)
        assert ol.counts()["ready"] == 3
    strange = served.get("/api/v1/dequeue?worker=w&tasks=work&queues=r", token)
    assert strange.status_code == 403
    assert (
        served.get("/api/v1/dequeue?worker=w&tasks=work", served.token("read")).status_code == 403
    )
    assert served.get("/api/v1/dequeue?worker=w&tasks=work").status_code == 401
