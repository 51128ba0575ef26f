"""Jobs that one more lost worker would end: each begins alone, so a crash is its own."""

from __future__ import annotations

import asyncio

import pytest

from outlast import Outlast
from outlast.worker import in_flight, job_source
from tests.support import Database, aeventually
from tests.worker.working import ended, sql, work


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspect is left alone for as long as it runs, and nothing that waits is released."""
    monkeypatch.setattr(in_flight, "SECLUDED_S", 60.0)
    monkeypatch.setattr(job_source, "PREFETCH_FOR_S", 60.0)


@pytest.mark.usefixtures("slow")
async def test_nothing_begins_beside_a_suspect_until_its_outcome_is_stored(
    ol: Outlast, database: Database
) -> None:
    """R050: or the next crash of another job would be blamed on it, too."""
    go, began, states = asyncio.Event(), list[str](), list[str]()

    @ol.task
    async def suspect() -> None:
        began.append("suspect")
        await go.wait()

    @ol.task
    async def other() -> None:
        began.append("other")
        states.append(str((await ol.ajob(job.id)).state))

    job = await suspect.aenqueue()
    sql(database, "UPDATE {job} SET crashes = 2")
    others = await ol.aenqueue(*(other.job() for _ in range(3)))
    async with work(ol, concurrency=8) as worker:
        await aeventually(lambda: began == ["suspect"])
        cycles = worker.counts["woken"]
        others += await ol.aenqueue(*(other.job() for _ in range(3)))
        await aeventually(lambda: worker.counts["woken"] > cycles)
        await asyncio.sleep(0.2)  # in which all of them would begin
        assert began == ["suspect"]
        go.set()
        for one in others:
            await ended(ol, one)
    assert states == ["succeeded"] * 6


async def test_a_suspect_that_runs_for_long_has_company(ol: Outlast, database: Database) -> None:
    """R050, R018: it delays others for a moment."""
    go = asyncio.Event()

    @ol.task
    async def suspect() -> None:
        await go.wait()

    @ol.task
    async def other() -> None: ...

    job = await suspect.aenqueue()
    sql(database, "UPDATE {job} SET crashes = 2")
    others = await ol.aenqueue(*(other.job() for _ in range(3)))
    async with work(ol, concurrency=8):
        for one in others:
            await ended(ol, one)
        assert (await ol.ajob(job.id)).state == "running"
        go.set()
        await ended(ol, job)


async def test_suspects_follow_each_other_without_a_pause(ol: Outlast, database: Database) -> None:
    """R050: the next one is claimed as the outcome of the last one is stored, not some polls
    later."""
    running = most = 0

    @ol.task
    async def suspect() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    number = 50
    jobs = await ol.aenqueue(*(suspect.job() for _ in range(number)))
    sql(database, "UPDATE {job} SET crashes = 2")
    async with work(ol, poll_min=1.0, poll_max=5.0) as worker:  # one pause would be too many
        await aeventually(lambda: worker.counts["succeeded"] == number, timeout=30)
    assert most == 1
    assert (await ol.ajob(jobs[-1].id)).state == "succeeded"


async def test_jobs_of_lost_workers_are_not_claimed_beyond_the_slots(
    ol: Outlast, database: Database
) -> None:
    """R050: at the next crash those that have not begun are not there."""
    most = 0

    @ol.task
    async def short() -> None:
        nonlocal most
        most = max(most, len(worker.in_flight))

    number, slots = 600, 10
    await ol.aenqueue(*(short.job() for _ in range(number)))
    sql(database, "UPDATE {job} SET crashes = 1")
    async with work(ol, concurrency=slots) as worker:
        await aeventually(lambda: worker.counts["succeeded"] == number, timeout=60)
    assert most <= 2 * slots, "running, and on their way back"
