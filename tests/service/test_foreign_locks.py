"""Somebody's lock on the jobs: remote workers that renew are told of it, in time to keep them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from outlast import Outlast, State
from tests.service.serving import Served, serving
from tests.service.streaming import QUICK, REPORTS, opened, report, said
from tests.support import Database, eventually
from tests.support.locks import foreign_lock

LEASE = 6.0
OTHERS = 20  # calls that wait for the lock, more than the service has connections
LOCKED = {"status": "busy", "cancel": False, "reason": None, "locked": True}


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol, replace(QUICK, remote_lease=LEASE, offer_lease=30.0)) as running:
        yield running


def offered(served: Served, token: str, number: int) -> Any:
    @served.ol.task(name="work")
    def work(n: int) -> None: ...

    served.ol.enqueue(*[work.job(n) for n in range(number)])
    return opened(served, token, credit=number)


@pytest.mark.quiet
def test_a_renewal_is_told_of_a_lock_although_many_calls_wait_for_it(
    served: Served, database: Database
) -> None:
    """R214: within a third of the lease, also for a token that must be looked up first; and an
    offer that could not be accepted can be when the lock is gone."""
    token, unseen = served.token("work"), served.token("work", name="unseen")
    with offered(served, token, OTHERS + 2) as stream:
        running, offer, *ending = stream.offers(OTHERS + 2)
        report(served, token, said(running, "renew"), *[said(job, "renew") for job in ending])
        with ThreadPoolExecutor(OTHERS) as others:
            with foreign_lock(database):
                for job in ending:
                    said_of = {"reports": [said(job, "fail", how="permanent")]}
                    others.submit(served.post, REPORTS, token, json=said_of)
                time.sleep(0.5)  # so that those wait
                asked_at = time.monotonic()
                answers = report(served, unseen, said(running, "renew"), said(offer, "renew"))
                took = time.monotonic() - asked_at
            assert answers == [LOCKED, LOCKED]
            assert took < LEASE / 3
            again = report(served, unseen, said(running, "renew"), said(offer, "renew"))
            assert [answer["status"] for answer in again] == ["ok", "ok"]
    now = served.ol.job(offer["id"])
    assert (now.state, now.attempt, now.crashes) == (State.RUNNING, 1, 0)


@pytest.mark.slow_on("postgres")
@pytest.mark.quiet
def test_many_workers_share_the_wait_for_a_lock(served: Served, database: Database) -> None:
    """R214: fifty workers that renew at the same moment hear of a lock within two waits, not one
    after the other."""
    token = served.token("work")
    with offered(served, token, 50) as stream:
        jobs = stream.offers(50)
        report(served, token, *[said(job, "renew") for job in jobs])
        with foreign_lock(database), ThreadPoolExecutor(50) as workers:
            asked_at = time.monotonic()
            calls = [workers.submit(report, served, token, said(job, "renew")) for job in jobs]
            assert all(call.result() == [LOCKED] for call in calls)
            assert time.monotonic() - asked_at < LEASE / 2
        eventually(lambda: renewed_all(served, token, jobs))


def renewed_all(served: Served, token: str, jobs: list[dict[str, Any]]) -> bool:
    answers = report(served, token, *[said(job, "renew") for job in jobs])
    return all(answer["status"] == "ok" for answer in answers)
