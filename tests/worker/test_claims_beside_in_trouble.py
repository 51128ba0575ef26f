"""Of two claims under way, one fails, is stuck, or is given up."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from outlast import Context, Outlast, StoreUnavailable
from outlast.worker.capacity import Capacity
from tests.support import Database, aeventually
from tests.worker.beside import AT_ONCE, SLOTS, Requests, succeeded
from tests.worker.working import sql, work

pytestmark = [
    pytest.mark.kinds("postgres"),
    pytest.mark.quiet,
    pytest.mark.usefixtures("short_handlers"),
]


async def test_a_claim_that_fails_beside_another_costs_no_job_a_second_run(
    ol: Outlast, requests: Requests
) -> None:
    """R170: its response is lost. What the other gave is in hand before the worker waits for the
    database."""
    ran: list[int] = []

    @ol.task
    async def short(n: int) -> None:
        ran.append(n)

    async def lose_one(*asked: Any) -> Any:
        answer = await exchange(*asked)
        if requests.under_way == 2 and not worker.counts["turn_failed"]:
            raise StoreUnavailable(reason="gone for a moment")
        return answer

    number = 30 * AT_ONCE
    await ol.aenqueue(*map(short.job, range(number)))
    async with work(ol, concurrency=SLOTS, renew_every=0.2) as worker:
        exchange, worker.sink._finish_and_claim = worker.sink._finish_and_claim, lose_one
        worker._backoff.first = 60.0
        await aeventually(lambda: worker.counts["turn_failed"])
        assert not worker.source._pending
        worker.on_answer()
        await succeeded(worker, number)
    assert sorted(ran) == list(range(number))
    assert requests.beside, "else this shows nothing"


async def test_two_claims_that_fail_together_are_one_line_in_the_log(
    ol: Outlast, requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    """R014: one outage, one line."""
    lost = 0

    @ol.task
    async def short() -> None: ...

    async def lose_two(*asked: Any) -> Any:
        nonlocal lost
        answer = await exchange(*asked)
        if lost == 1 or (requests.under_way == 2 and not lost):
            lost += 1
            raise StoreUnavailable(reason="gone for a moment")
        return answer

    number = 30 * AT_ONCE
    await ol.aenqueue(*(short.job() for _ in range(number)))
    with caplog.at_level(logging.DEBUG, "outlast.worker"):
        async with work(ol, concurrency=SLOTS, renew_every=0.2) as worker:
            exchange, worker.sink._finish_and_claim = worker.sink._finish_and_claim, lose_two
            worker._backoff.first = 60.0
            await aeventually(lambda: worker.counts["turn_failed"] == 2)
            worker.on_answer()
            await succeeded(worker, number)
    said = [record for record in caplog.records if "gone for a moment" in record.getMessage()]
    assert [record.levelname for record in said].count("WARNING") == 1


async def test_a_look_for_queues_that_fails_beside_a_claim_leaves_none_of_its_jobs_waiting(
    ol: Outlast, requests: Requests
) -> None:
    """R023: what the claim gave is in hand before the worker waits for the database."""
    ran: list[int] = []
    failed = False

    @ol.task
    async def short(n: int) -> None:
        ran.append(n)
        worker.source.poller.resume()  # it is time to look

    async def look(*asked: Any) -> Any:
        nonlocal failed
        if requests.under_way and not failed:
            failed = True
            raise StoreUnavailable(reason="gone for a moment")
        return await answer(*asked)

    number = 10 * AT_ONCE
    await ol.aenqueue(*map(short.job, range(number)))
    async with work(ol, concurrency=SLOTS) as worker:
        answer, worker.source.poller._find_pending = worker.source.poller._find_pending, look
        worker._backoff.first = 60.0
        await aeventually(lambda: worker.counts["turn_failed"])
        assert failed and not worker.source._pending
        worker.on_answer()
        await succeeded(worker, number)
    assert sorted(ran) == list(range(number))


async def test_a_claim_that_is_stuck_does_not_hold_up_the_jobs_of_those_that_follow(
    ol: Outlast, requests: Requests
) -> None:
    """R018: a lock, or a connection that went silent, keeps one of two claims for seconds. Looks
    for queues go on meanwhile."""
    ran: list[int] = []
    stuck_at, looks, released = 0, 0, asyncio.Event()

    @ol.task
    async def short(n: int) -> None:
        ran.append(n)

    async def keep_one(*asked: Any) -> Any:
        nonlocal stuck_at
        answer = await exchange(*asked)
        if requests.under_way == 2 and not stuck_at:
            stuck_at = len(ran) or 1
            worker.source.poller.resume()  # it is time to look
            await released.wait()
        return answer

    async def look(*asked: Any) -> Any:
        nonlocal looks
        looks += bool(stuck_at)
        return await pending(*asked)

    number = 40 * AT_ONCE
    await ol.aenqueue(*map(short.job, range(number)))
    async with work(ol, concurrency=SLOTS) as worker:
        exchange, worker.sink._finish_and_claim = worker.sink._finish_and_claim, keep_one
        pending, worker.source.poller._find_pending = worker.source.poller._find_pending, look
        try:
            await aeventually(lambda: looks and len(ran) > stuck_at + 5 * AT_ONCE)
        finally:
            released.set()
        await succeeded(worker, number)
    assert sorted(ran) == list(range(number))


async def test_who_stops_at_once_gives_up_the_claim_under_way(
    ol: Outlast, database: Database, requests: Requests
) -> None:
    """R184: a second signal waits for no claim that is stuck; what it took is released, unspent."""

    @ol.task
    async def short() -> None: ...

    async def keep_one(*asked: Any) -> Any:
        nonlocal kept
        answer = await exchange(*asked)
        if requests.under_way == 2 and not kept:
            kept = True
            worker.stop()
            worker.stop()
            await asyncio.Event().wait()
        return answer

    number, kept = 40 * AT_ONCE, False
    await ol.aenqueue(*(short.job() for _ in range(number)))
    async with asyncio.timeout(60), work(ol, concurrency=SLOTS) as worker:
        exchange, worker.sink._finish_and_claim = worker.sink._finish_and_claim, keep_one
        await aeventually(lambda: kept)
    counts = ol.counts()
    assert counts["ready"] and counts["ready"] + counts["succeeded"] == number
    spent = sql(database, "SELECT count(*) FROM {job} WHERE state = 'ready' AND attempt > 0")
    assert spent == [(0,)]


async def test_no_claim_is_begun_for_no_job(
    ol: Outlast, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R192: the room of a claim is read once; memory may be short a moment later."""
    asked = False

    def forget() -> None:
        nonlocal asked
        asked = False

    def room(capacity: Capacity) -> int:
        nonlocal asked
        if asked:
            return 0
        asked = True
        asyncio.get_running_loop().call_soon(forget)
        return beside(capacity)

    beside = Capacity.beside
    monkeypatch.setattr(Capacity, "beside", room)

    @ol.task
    async def short() -> None: ...

    number = 20 * AT_ONCE
    await ol.aenqueue(*(short.job() for _ in range(number)))
    async with work(ol, concurrency=SLOTS) as worker:
        await succeeded(worker, number)
    assert requests.beside, "else this shows nothing"
    assert min(requests.limits) > 0


async def test_outcomes_that_are_handed_in_alone_keep_their_slots(
    ol: Outlast, requests: Requests
) -> None:
    """R182: those with follow-ups that have keys may wait for others; no more handlers begin than
    there are slots for."""
    most = 0

    @ol.task
    async def follow_up() -> None: ...

    @ol.task(queue="short")
    async def short(n: int, ctx: Context) -> None:
        nonlocal most
        most = max(most, worker.in_flight.slots)
        if n % 7 == 6:
            ctx.enqueue(follow_up.using(key=f"after-{n}").job())

    number = 20 * AT_ONCE
    await ol.aenqueue(*map(short.job, range(number)))
    async with work(ol, concurrency=SLOTS, queues=["short"]) as worker:
        await succeeded(worker, number)
    assert max(requests.limits) > SLOTS, "else this shows nothing"
    assert most == SLOTS
