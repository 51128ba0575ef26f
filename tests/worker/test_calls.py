"""What a job costs in Python, counted and not timed: calls of functions, ours and the drivers'.

A limit that is passed is no fault by itself. It says that the path which every job takes became
longer, and asks whether that is worth it.
"""

from __future__ import annotations

import cProfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outlast import Outlast
from outlast.worker.worker import Worker
from tests.support import aeventually
from tests.worker.working import work

JOBS = 1000
BATCH = 100
MOST_TO_ENQUEUE = 52
MOST_TO_RUN = 110  # 102 on PostgreSQL, 86 on SQLite, where nothing is claimed ahead


class Calls:
    per_job = 0.0


@contextmanager
def counted() -> Iterator[Calls]:
    """The calls that this thread makes meanwhile, for each job."""
    calls, profile = Calls(), cProfile.Profile()
    profile.enable()
    try:
        yield calls
    finally:
        profile.disable()
        calls.per_job = sum(entry.callcount for entry in profile.getstats()) / JOBS


@pytest.fixture
def enqueued(ol: Outlast) -> Outlast:
    @ol.task
    async def nothing(payload: str) -> None:
        pass

    nothing.enqueue(payload="the first of them has everything imported")
    with counted() as calls:
        ol.enqueue(*(nothing.job(payload=f"number {n}") for n in range(JOBS)))
    assert calls.per_job <= MOST_TO_ENQUEUE
    return ol


async def test_a_job_takes_no_more_calls_than_it_did(enqueued: Outlast) -> None:
    """R036, R180: to enqueue it among many, and to claim it, run it and give it back."""
    worker = work(enqueued, concurrency=BATCH, poll_max=60.0)
    with counted() as calls:
        async with worker:
            await aeventually(lambda: done(worker) > JOBS, timeout=60)
    assert calls.per_job <= MOST_TO_RUN


def done(worker: Worker) -> int:
    return worker.counts["succeeded"]
