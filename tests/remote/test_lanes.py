"""Remote workers take turns, slots and shares as local ones do."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from outlast import ClaimLost, Context, Outlast, Retry, RetryLater, ServerRefused
from outlast.remote import RemoteWorker
from tests.remote.test_worker import ended, working
from tests.service.serving import Served
from tests.support import aeventually


async def test_remote_workers_keep_the_limits_of_lanes(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R238: an offer takes a slot, and its end frees one for whoever is there."""
    running, most = Counter[str](), Counter[str]()
    ol.queue("mail", running=3, lane_running=2)

    @ol.task(queue="mail", lane=lambda account, **_: account)
    async def send(account: str) -> None:
        for name in (account, "all"):
            running[name] += 1
            most[name] = max(most[name], running[name])
        await asyncio.sleep(0.01)
        for name in (account, "all"):
            running[name] -= 1

    await ol.aenqueue(*(send.job(account) for account in "abc" * 8))
    async with AsyncExitStack() as stack:
        for n in range(2):
            await stack.enter_async_context(working(served, tmp_path / str(n)))

        async def all_done() -> bool:
            return (await ol.acounts())["succeeded"] == 24

        await aeventually(all_done, 60.0)
    assert most["all"] <= 3 and max(most[lane] for lane in "abc") <= 2


async def test_order_holds_when_remote_workers_take_the_jobs(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R240."""
    seen: dict[str, list[int]] = {"a": [], "b": []}
    ol.queue("sync", ordered=True)

    @ol.task(queue="sync", lane=lambda account, **_: account)
    async def sync(account: str, n: int) -> None:
        seen[account].append(n)

    await ol.aenqueue(*(sync.job(account, n) for n in range(8) for account in "ab"))
    async with AsyncExitStack() as stack:
        for n in range(2):
            await stack.enter_async_context(working(served, tmp_path / str(n)))
        await aeventually(lambda: sum(map(len, seen.values())) == 16, 60.0)
    assert seen == {"a": list(range(8)), "b": list(range(8))}


async def test_a_remote_worker_slows_its_lane_down_for_all_workers(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R057, R148: a 429 paces the lane, of sync and async handlers; other lanes go on."""
    calls: list[tuple[str, float]] = []
    ol.queue("api", lane_rate="200/s")

    @ol.task(queue="api", lane=lambda account, **_: account, retry=Retry(max_attempts=1))
    async def call(account: str, n: int, ctx: Context) -> None:
        calls.append((account, asyncio.get_running_loop().time()))
        if [one for one, _ in calls].count(account) == 1 and account == "slow":
            until = await ctx.slow_down(1.0)
            assert isinstance(until, float)
            raise RetryLater(0.0)

    @ol.task(queue="api", lane="threads", retry=Retry(max_attempts=1))
    def sync_call(ctx: Context) -> None:
        ctx.slow_down(0.5)

    jobs = await ol.aenqueue(*(call.job(account, n) for n in range(3) for account in ("slow", "b")))
    jobs += await ol.aenqueue(sync_call.job())
    async with AsyncExitStack() as stack:
        for n in range(2):
            await stack.enter_async_context(working(served, tmp_path / str(n), concurrency=1))
        for job in jobs:
            done = await ended(ol, job, 60.0)
            assert (done.state, done.failures) == ("succeeded", 0), done.error
    slow = [at for account, at in calls if account == "slow"]
    assert len(slow) == 4 and slow[-1] - slow[0] >= 1.0


async def test_a_remote_worker_that_lost_its_job_closes_no_lane(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R012, R057: the server compares the fence."""
    began, reclaimed, told = threading.Event(), threading.Event(), list[Exception]()
    ol.queue("api", lane_running=9)

    @ol.task(queue="api", lane="a")
    def call(ctx: Context) -> None:
        if began.is_set():
            return  # a later run: a reclaim by an operator charges no attempt
        began.set()
        reclaimed.wait(30.0)
        try:
            ctx.slow_down(600.0)
        except Exception as error:
            told.append(error)

    job = await call.aenqueue()
    async with working(served, tmp_path):
        await aeventually(began.is_set, 30.0)
        await ol.areclaim(job.id)
        reclaimed.set()
        await ended(ol, job, 30.0)
        await aeventually(lambda: bool(told), 30.0)
    assert isinstance(told[0], ClaimLost)
    assert (await call.aenqueue()).state == "ready"
    async with working(served, tmp_path):
        await aeventually(lambda: ol.counts()["succeeded"] == 2, 30.0)


async def test_a_tenant_s_remote_worker_closes_its_own_lane_alone(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R145, R057: a lane that other tenants share is not its to close: one that a job names, or
    one with its tenant's name in a queue whose lanes are not tenants."""
    told: dict[str, object] = {}
    ol.queue("fair", lane="tenant")
    ol.queue("shared", lane_running=9)

    @ol.task(retry=Retry(max_attempts=1))
    async def call(case: str, ctx: Context) -> None:
        try:
            told[case] = await ctx.slow_down(0.1)
        except ServerRefused as error:
            told[case] = str(error)

    acme = call.using(tenant="acme")
    await ol.aenqueue(
        acme.using(queue="fair").job("own"),
        acme.using(queue="fair", lane="zeta").job("named"),
        acme.using(queue="shared", lane="acme").job("shared"),
    )
    token = served.token("work", tenant="acme")
    async with RemoteWorker(served.url, token, ol, concurrency=2, grace=1.0, spool=tmp_path):
        await aeventually(lambda: len(told) == 3, 30.0)
    assert isinstance(told["own"], float)
    for case in ("named", "shared"):
        assert "not this tenant's alone" in str(told[case])
        assert "RetryLater" in str(told[case])


@pytest.mark.parametrize("limits", [{}, {"lane_running": 50}], ids=["plain", "lanes"])
async def test_remote_workers_leave_low_priorities_of_a_flood_their_share(
    served: Served, ol: Outlast, tmp_path: Path, limits: dict[str, Any]
) -> None:
    """R243: each of two gives every tenth claim to the longest due."""
    order: list[int] = []
    if limits:
        ol.queue("mail", **limits)

    @ol.task(queue="mail")
    async def send(ctx: Context, more: bool = True) -> None:
        order.append(ctx.job.priority)
        if more:
            ctx.enqueue(send.using(priority=10).job())

    await ol.aenqueue(*(send.using(priority=-10).job(more=False) for _ in range(5)))
    await asyncio.sleep(0.002)  # the clock of SQLite counts milliseconds
    await ol.aenqueue(*(send.using(priority=10).job() for _ in range(50)))
    async with AsyncExitStack() as stack:
        for n in range(2):
            await stack.enter_async_context(working(served, tmp_path / str(n), concurrency=2))
        await aeventually(lambda: order.count(-10) == 5, 60.0)
    last = [n for n, priority in enumerate(order, 1) if priority == -10][-1]
    assert last <= 10 * (5 + 2 * 4), "each of both has at most four in hand"
