"""Remote workers take turns and slots as local ones do."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from outlast import Outlast
from tests.remote.test_worker import working
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
