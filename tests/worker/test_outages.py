"""A worker whose database is away: it asks ever more calmly, and goes on when it is back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from outlast import Context, Outlast, State
from outlast.loops import Backoff, Loop, ReconnectBackoff
from outlast.model.claim import Claim
from outlast.model.errors import DeadlineExceeded, ServerUnavailable, StoreUnavailable
from outlast.model.lifecycle import Outcome
from outlast.model.outcome import Transition
from outlast.worker.heartbeat import LeaseBackoff
from outlast.worker.in_flight import InFlight
from outlast.worker.outage_log import OutageLog
from tests.support import Database, Proxy, aeventually

from .working import SLACK, ended, work

WORKER_LOG = "outlast.worker"
LOOPS = 8  # the worker's own, its watch, and the keeper's


@pytest.fixture
def far(database: Database, proxy: Proxy) -> Iterator[Outlast]:
    with Outlast(proxy.url(database.url), schema=database.schema) as opened:
        yield opened


async def outage(
    far: Outlast, proxy: Proxy, caplog: pytest.LogCaptureFixture, seconds: float, most: int
) -> None:
    """The database refuses every connection for a while, with an event said every few moments."""

    @far.task
    async def quick() -> str:
        return "quick"

    @far.task
    async def talks(ctx: Context) -> None:
        while not ctx.cancelled.is_set():
            ctx.progress(1)  # news for the loop, which must not make it hurry
            await asyncio.sleep(0.02)

    caplog.set_level(logging.INFO, logger="outlast")
    async with work(far, lease=3600, renew_every=1.0) as worker:
        await talks.aenqueue()
        await far.aresult((await quick.aenqueue()).id, timeout=10)
        caplog.clear()
        proxy.refuse()
        refused, used = proxy.accepted, time.process_time()
        await asyncio.sleep(seconds)
        attempts, used = proxy.accepted - refused, time.process_time() - used
        lines = [record.getMessage() for record in caplog.records if record.name == WORKER_LOG]
        proxy.accept()
        failed = worker.counts["turn_failed"]
        assert 1 <= failed <= most
        # A broken connection is replaced twice at once; only then is the database away.
        assert attempts <= LOOPS * (most + 2)
        for loop in worker.leases.loops:
            assert loop.failures <= most + 1, loop.name  # the first one broke with its connection
        assert len(lines) == 1, lines
        assert "cannot be reached" in lines[0] and "next try in" in lines[0]
        assert used < 0.05 * seconds + 0.5
        before = time.monotonic()
        assert await far.aresult((await quick.aenqueue()).id, timeout=40) == "quick"
        assert time.monotonic() - before < 30 + SLACK
        await aeventually(lambda: worker._backoff.failures == 0)
        await aeventually(lambda: "the database responds again, after" in caplog.text)
        assert caplog.text.count("responds again") == 1
        for job in await far.ajobs(state="running"):
            await far.acancel(job.id)
            await ended(far, job, timeout=40)


@pytest.mark.kinds("postgres")
async def test_a_database_that_is_away_is_asked_ever_more_calmly(
    far: Outlast, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """R014: a small sample of the campaign."""
    await outage(far, proxy, caplog, seconds=2.5, most=4)


@pytest.mark.campaign
@pytest.mark.kinds("postgres")
async def test_a_database_that_is_away_for_long_is_asked_ever_more_calmly(
    far: Outlast, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """R014"""
    await outage(far, proxy, caplog, seconds=20.0, most=12)


@pytest.mark.kinds("postgres", "pgbouncer")
async def test_a_worker_goes_on_soon_after_a_long_outage(
    far: Outlast, ol: Outlast, proxy: Proxy
) -> None:
    """R179: its watch tries every two seconds and wakes the others, whatever they have learned to
    wait; also through a pooler, where the watch has no connection of its own."""

    @far.task
    async def quick() -> str:
        return "quick"

    async with work(far, renew_every=0.5) as worker:
        await far.aresult((await quick.aenqueue()).id, timeout=10)
        loops = {loop.name: loop for loop in worker.leases.loops}
        reclaim, watch = loops["reclaim"], loops["watch"]
        backoffs = worker._backoff, reclaim._backoff, watch._backoff
        proxy.refuse()
        job = (await ol.aenqueue(quick.job()))[0]
        await aeventually(lambda: all(backoff.failures > 0 for backoff in backoffs), 30)
        for backoff in backoffs:
            backoff.failures = 20  # without a cap its next wait is 21 s at least
        await aeventually(lambda: all(backoff.failures > 20 for backoff in backoffs), 60)
        reclaimed, back = reclaim.succeeded_at, time.monotonic()
        proxy.accept()
        assert await ol.aresult(job.id, timeout=60) == "quick"
        await aeventually(lambda: reclaim.succeeded_at > reclaimed, 60)
        assert time.monotonic() - back < 2.0 + SLACK


def test_a_watch_tries_at_most_12_times_in_20_s_and_waits_for_less_than_2_s() -> None:
    """R014, R179: whatever the jitter."""
    for _ in range(1000):
        backoff, tries, at = ReconnectBackoff(), 0, 0.0
        while (at := at + (wait := backoff.failed())) < 20.0:
            assert wait < 1.9
            tries += 1
        assert 10 <= tries <= 12


@pytest.mark.kinds("postgres")
async def test_a_worker_that_starts_before_its_database_waits_for_it(
    ol: Outlast, far: Outlast, proxy: Proxy
) -> None:
    """R178, R188: no crash, and work begins when the database is there."""

    @far.task
    async def quick() -> str:
        return "quick"

    proxy.refuse()
    async with work(far):
        await asyncio.sleep(0.3)
        job = (await ol.aenqueue(quick.job()))[0]
        proxy.accept()
        assert await ol.aresult(job.id, timeout=10) == "quick"


def test_back_off_grows_to_its_cap_with_jitter_and_starts_again_after_a_success() -> None:
    """R014: 1 s, then 2.5 times longer each time, up to 30 s."""
    backoff = Backoff()
    waits = [backoff.failed() for _ in range(2000)]
    for wait, plain in zip(waits, [1.0, 2.5, 6.25, 15.625, *[30.0] * 1996], strict=True):
        assert 0.7 * plain <= wait <= plain
    assert len(set(waits)) > 1990
    assert sum(wait <= 30 for wait in waits) == 2000
    backoff.succeeded()
    assert backoff.failed() <= 1.0


async def test_a_loop_outlives_every_error_and_forgets_those_of_long_ago() -> None:
    """R014, R023: counted and backed off; a pass that went well for long starts anew."""
    errors = [StoreUnavailable(reason="away"), ValueError("a bug"), KeyError("x")]
    lasting = 0.0

    async def once() -> None:
        await asyncio.sleep(lasting)
        if errors:
            raise errors.pop()

    loop = Loop("test", once, 5.0, Backoff(first=0.01, cap=0.06, factor=2.0))
    waits = [await loop.astep() for _ in range(3)]
    for wait, plain in zip(waits, [0.01, 0.02, 0.04], strict=True):
        assert 0.7 * plain <= wait <= plain
    errors.append(StoreUnavailable(reason="cut off after it had watched for long"))
    lasting = 0.1
    assert await loop.astep() <= 0.01
    assert 4.0 <= await loop.astep() <= 5.0
    assert (loop.passes, loop.failures) == (5, 4)


async def test_a_loop_runs_when_it_is_poked_and_ends_when_it_is_told() -> None:
    """R023: and at no other time."""

    async def once() -> float:
        return 3600.0

    loop = Loop("test", once, 3600.0)
    running = asyncio.create_task(loop.arun())
    for passes in (1, 2, 3):
        await aeventually(lambda passes=passes: loop.passes == passes)
        loop.trigger()
    loop.stop()
    await asyncio.wait_for(running, 5)


def test_a_renewal_is_tried_again_soon_while_a_lease_is_at_stake() -> None:
    """R033: within the lease, several times; a worker with empty hands can wait like any other."""
    with Outlast("sqlite:///nowhere.db") as ol:
        worker = ol.worker(lease=15.0, renew_every=5.0)
        idle = LeaseBackoff(worker.shared.state, worker.in_flight)
        assert max(idle.failed() for _ in range(20)) > 20
        facts: dict[str, Any] = dict.fromkeys(Claim._fields)
        worker.in_flight.add(InFlight(Claim(**facts | {"id": "x", "fence": 1}), safe_until=0.0))
        busy = LeaseBackoff(worker.shared.state, worker.in_flight)
        assert max(busy.failed() for _ in range(20)) <= 2.5
        [job] = worker.in_flight.running()
        job.transition = Transition(job.claim, Outcome.SUCCEEDED, State.SUCCEEDED)
        waits = LeaseBackoff(worker.shared.state, worker.in_flight)
        assert max(waits.failed() for _ in range(20)) <= 2.5, "its outcome is not stored yet"


def test_an_outage_is_logged_when_it_begins_lasts_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line for all parts of a worker; one a minute while it lasts; none for a short relapse."""
    now = 0.0
    outage, away = OutageLog(lambda: now), StoreUnavailable(reason="refused")
    assert not outage.logs(DeadlineExceeded(seconds=30), 1.0), "one slow statement is no outage"
    assert all(outage.logs(away, 1.0) for _ in range(5))
    assert outage.logs(DeadlineExceeded(seconds=30), 1.0)
    now = 90.0
    outage.logs(away, 30.0)
    outage.answered()
    outage.answered()
    now = 92.0
    outage.logs(away, 1.0)
    outage.answered()
    assert not outage.logs(ServerUnavailable(reason="refused"), 1.0), "of a remote worker"
    assert [record.getMessage() for record in caplog.records] == [
        "The database cannot be reached: refused; next try in 1.0 s",
        "The database cannot be reached: refused; away for 90.0 s; next try in 30.0 s",
        "the database responds again, after 90.0 s",
    ]
