"""Jobs by long poll: offers as on a stream, in one answer."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

from outlast import Job, Outlast
from outlast.model.worker_names import is_offer
from outlast.service.dequeue import shared_poll
from tests.service.serving import Served, bearer, serving
from tests.service.streaming import QUICK, opened, report, said, statuses
from tests.service.test_dequeue import back, enqueued, wait_until_back
from tests.support import eventually

PATH = "/api/v1/dequeue"
PATIENT = replace(QUICK, offer_lease=60.0, remote_lease=60.0)


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol, QUICK) as running:
        yield running


@pytest.fixture
def patient(ol: Outlast) -> Iterator[Served]:
    """One whose offers hold for a minute: what comes back sooner was put back."""
    with serving(ol, PATIENT) as running:
        yield running


def poll(served: Served, token: str | None, **wish: Any) -> dict[str, Any]:
    query = {"worker": "hand", "tasks": "work", "credit": 5, "wait": 0, **wish}
    answer = served.post(PATH, token, params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_the_answer_has_jobs_that_the_first_renewal_accepts(served: Served, ol: Outlast) -> None:
    """R039, R042, R142: claim, token, fence and lease are those of a stream."""
    token = served.token("work")
    [job] = enqueued(ol, 1)
    answer = poll(served, token)
    assert (answer["lease"], answer["offer_lease"], answer["renew"]) == (2.0, 1.0, False)
    [offer] = answer["jobs"]
    assert (offer["id"], offer["attempt"], offer["fence"]) == (job.id, 1, 1)
    assert is_offer(ol.job(job.id).worker or "")
    assert statuses(report(served, token, said(offer, "renew"))) == ["ok"]
    assert ol.job(job.id).worker == answer["worker"]
    assert statuses(report(served, token, said(offer, "complete", result="7"))) == ["ok"]
    assert ol.job(job.id).result == 7
    assert answer["worker"] in [worker.id for worker in ol.workers()]


def test_it_waits_for_a_job_and_no_longer_than_it_was_told(served: Served, ol: Outlast) -> None:
    """R142: within a second of the enqueue; an empty answer after `wait`."""
    token = served.token("work")
    since = time.monotonic()
    assert poll(served, token, wait=0.5)["jobs"] == []
    assert 0.4 < time.monotonic() - since < 5.0
    found: list[Any] = []
    polling = threading.Thread(
        target=lambda: found.append((poll(served, token, wait=20), time.monotonic()))
    )
    polling.start()
    eventually(lambda: served.app.service.dispatcher.streams)
    [job] = enqueued(ol, 1)
    since = time.monotonic()
    polling.join(30)
    (answer, at) = found[0]
    assert [one["id"] for one in answer["jobs"]] == [job.id]
    assert at - since < 3.0


def test_no_more_is_given_than_the_worker_can_hold(patient: Served, ol: Outlast) -> None:
    """R142: what it has accepted counts, and what it was given and has not accepted yet."""
    token = patient.token("work")
    enqueued(ol, 6)
    first = poll(patient, token, credit=3)["jobs"]
    assert len(first) == 3
    assert poll(patient, token, credit=3)["jobs"] == []
    report(patient, token, *[said(job, "renew") for job in first])
    assert poll(patient, token, credit=3)["jobs"] == []
    report(patient, token, said(first[0], "complete"), said(first[1], "release", delay=60))
    assert len(poll(patient, token, credit=3)["jobs"]) == 2
    assert len(poll(patient, token, worker="other")["jobs"]) == 1


def test_jobs_that_are_not_accepted_go_back_unspent(served: Served, ol: Outlast) -> None:
    """R142, R143: after the lease of an offer; the worker's late renewal is told so."""
    token = served.token("work")
    jobs = enqueued(ol, 3)
    offers = poll(served, token)["jobs"]
    assert len(offers) == 3
    wait_until_back(ol, jobs)
    assert statuses(report(served, token, said(offers[0], "renew"))) == ["lost"]
    book = served.app.service.dispatcher.book
    eventually(lambda: len(book) == 0)


def raw(served: Served, token: str, **wish: Any) -> socket.socket:
    """A poll whose answer is not read."""
    parts = urlsplit(served.url)
    asked = socket.create_connection((parts.hostname, parts.port))
    query = urlencode({"worker": "hand", "tasks": "work", "credit": 5, "wait": 20, **wish})
    head = f"POST {PATH}?{query} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-length: 0\r\n"
    asked.sendall(f"{head}authorization: Bearer {token}\r\n\r\n".encode())
    return asked


def reset(asked: socket.socket) -> None:
    asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    asked.close()


def test_a_client_that_goes_away_before_the_answer_costs_nothing(
    patient: Served, ol: Outlast
) -> None:
    """R143: jobs that come later are not claimed for it, and its slot is free at once."""
    token = patient.token("work")
    desk = patient.app.service.dispatcher
    asked = raw(patient, token)
    eventually(lambda: desk.streams)
    reset(asked)
    eventually(lambda: not desk.streams)
    eventually(lambda: patient.app.service.worker_streams.taken == 0)
    jobs = enqueued(ol, 3)
    assert back(ol, jobs)
    assert len(poll(patient, token)["jobs"]) == 3


async def test_a_client_that_goes_away_while_jobs_are_claimed_for_it_costs_nothing(
    patient: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R143: the claim was on its way; its jobs go back at once, unspent."""
    token = patient.token("work")
    desk = patient.app.service.dispatcher
    claimed, go_on = threading.Event(), threading.Event()
    offer = desk._offer

    async def held_up(*args: Any) -> Any:
        claims = await offer(*args)
        claimed.set()
        await asyncio.to_thread(go_on.wait, 10)
        return claims

    monkeypatch.setattr(desk, "_offer", held_up)
    jobs = enqueued(ol, 3)
    asked = await asyncio.to_thread(raw, patient, token)
    assert await asyncio.to_thread(claimed.wait, 10)
    reset(asked)
    await asyncio.to_thread(eventually, lambda: not desk.streams)
    go_on.set()
    await asyncio.to_thread(wait_until_back, ol, jobs)


@pytest.mark.kinds("postgres")
def test_a_cancel_ends_the_poll_of_the_worker_that_has_the_job(
    patient: Served, ol: Outlast
) -> None:
    """R115: a worker with a free slot learns of it at once, and not with its next renewal. (SQLite
    sends no notifications.)"""
    token = patient.token("work")
    [job] = enqueued(ol, 1)
    [offer] = poll(patient, token)["jobs"]
    report(patient, token, said(offer, "renew"))
    found: list[Any] = []
    polling = threading.Thread(target=lambda: found.append(poll(patient, token, wait=20)))
    polling.start()
    eventually(lambda: patient.app.service.dispatcher.streams)
    ol.cancel(job.id)
    polling.join(10)
    assert found[0]["renew"] is True and found[0]["jobs"] == []
    [answer] = report(patient, token, said(offer, "renew"))
    assert answer["cancel"] is True


def test_polls_have_the_limits_of_streams(ol: Outlast) -> None:
    """R142: slots, tenants, queues; a revoked token ends a poll with 401."""
    few = replace(PATIENT, streams_per_token=1)
    with serving(ol, few) as served:
        secret, id = served.made_token("work", tenant="acme", queues=["mail"])
        with opened(served, secret, queues="mail"):
            refused = served.post(PATH, secret, params={"worker": "w", "tasks": "t", "wait": 0})
            assert refused.status_code == 429, refused.text
        query = {"worker": "w", "tasks": "work", "queues": "other", "wait": 0}
        assert served.post(PATH, secret, params=query).status_code == 403
        enqueued(ol, 2)  # of another tenant, in another queue
        assert poll(served, secret)["jobs"] == []
        for wrong in ({"wait": -1}, {"wait": "x"}, {"credit": 0}, {"tasks": ""}):
            query = {"worker": "w", "tasks": "work", "wait": 0, **wrong}
            assert served.post(PATH, secret, params=query).status_code == 422
        statuses: list[int] = []

        def wait_long() -> None:
            query = {"worker": "w", "tasks": "t", "wait": 30}
            told = httpx.post(
                served.url + PATH, params=query, headers=bearer(secret), timeout=30,
                trust_env=False,
            )  # fmt: skip
            statuses.append(told.status_code)

        polling = threading.Thread(target=wait_long)
        polling.start()
        eventually(lambda: served.app.service.dispatcher.streams)
        served.revoke(id)
        polling.join(20)
        assert statuses == [401]


def test_a_worker_between_polls_is_known_by_its_renewals(served: Served, ol: Outlast) -> None:
    """R042: it runs one job for longer than a lease, and is not shown as silent."""
    token = served.token("work")
    enqueued(ol, 1)
    answer = poll(served, token, credit=1)
    [offer] = answer["jobs"]
    until = time.monotonic() + 2 * QUICK.remote_lease
    while time.monotonic() < until:
        assert statuses(report(served, token, said(offer, "renew"))) == ["ok"]
        [seen] = [worker for worker in ol.workers() if worker.id == answer["worker"]]
        assert seen.alive
        time.sleep(0.2)
    report(served, token, said(offer, "complete"))


def test_a_poll_that_does_not_wait_finds_what_was_enqueued_before_it(
    served: Served, ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R142: although one look is good for all polls of the same moment, and news may be late."""
    monkeypatch.setattr(shared_poll, "POLL_VALID_S", 60.0)
    monkeypatch.setattr(served.app.service.dispatcher, "notify", lambda queue: None)
    token = served.token("work")
    assert poll(served, token)["jobs"] == []
    enqueued(ol, 1)
    assert len(poll(served, token)["jobs"]) == 1


def polled_one_by_one(served: Served, ol: Outlast, number: int) -> list[Job]:
    """The jobs of so many polls of a worker that can hold one job."""
    token, done = served.token("work"), list[Job]()
    for _ in range(number):
        [offer] = poll(served, token, credit=1)["jobs"]
        done.append(ol.job(offer["id"]))
        report(served, token, said(offer, "complete"))
    return done


def test_queues_take_turns_from_poll_to_poll(patient: Served, ol: Outlast) -> None:
    """R142: with more jobs in one queue than a poll takes, the others do not starve."""
    for queue in ("one", "two", "three"):
        enqueued(ol, 9, queue=queue)
    done = polled_one_by_one(patient, ol, 6)
    assert Counter(job.queue for job in done) == {"one": 2, "two": 2, "three": 2}


def test_lanes_take_turns_from_poll_to_poll(patient: Served, ol: Outlast) -> None:
    """R142, R238: with more lanes than a poll takes jobs."""
    ol.queue("fair", lane="tenant", lane_running=5)
    for tenant in "abcd":
        enqueued(ol, 9, queue="fair", tenant=tenant)
    done = polled_one_by_one(patient, ol, 8)
    assert Counter(job.tenant for job in done) == dict.fromkeys("abcd", 2)


def test_turns_are_forgotten_with_the_worker(patient: Served, ol: Outlast) -> None:
    """R142: nothing is kept of workers that are gone, nor used for other wishes."""
    token, polling = patient.token("work"), patient.app.service.dispatcher.polling
    for queues in ("one", "one,two"):
        poll(patient, token, queues=queues)
    enqueued(ol, 1, queue="two")
    [offer] = poll(patient, token, queues="one,two")["jobs"]
    report(patient, token, said(offer, "complete"))
    assert len(polling._pollers) == 1
    left = patient.call("DELETE", PATH, token, params={"worker": "hand"})
    assert left.status_code == 200, left.text
    assert polling._pollers == {}
