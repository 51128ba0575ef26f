"""An item that cannot be delivered ends dead, and all who wait for it hear of that."""

from __future__ import annotations

from collections import Counter

import pytest

from outlast import BatchFailed, Context, Outlast, Retry, State, group
from tests.support import aeventually

from .working import BOUND, SLACK, ended, work


@pytest.mark.kinds("sqlite", "postgres")
async def test_a_dead_lettered_item_leaves_nobody_waiting(ol: Outlast) -> None:
    """R074, R053: an item of an outbox is refused until its attempts are used up. The job that
    needs its delivery is dead with that reason within the bound, the one that only waits for an end
    runs, the alarm goes off once, and the items beside it are delivered. Nothing is pending."""
    sent: list[int] = []
    alarms: Counter[str] = Counter()

    @ol.task(batch=10, wait=0.01, retry=Retry(max_attempts=2, base=0.0, jitter=0.0))
    async def outbox(items: list[int]) -> None:
        refused = {n: RuntimeError("refused") for n, item in enumerate(items) if item == 13}
        sent.extend(item for item in items if item != 13)
        if refused:
            raise BatchFailed(refused)

    @ol.task
    async def alarm(ctx: Context) -> None:
        (item,) = [job async for job in ctx.prerequisites()]
        alarms[f"{item.task} {item.state}"] += 1

    @ol.task
    async def settle() -> str:
        return "settled"

    poison = outbox.using(on_dead=alarm.job()).job(13)
    *items, needs = await ol.aenqueue(
        group(outbox.job(1), poison, outbox.job(2)).then(settle.job())
    )
    (anyway,) = await ol.aenqueue(settle.using(after=items, when="finished").job())
    async with work(ol):
        done = await ended(ol, needs, BOUND + SLACK)
        assert (await ended(ol, anyway)).result == "settled"
        await aeventually(lambda: ol.counts()["succeeded"] == 4)  # two items, anyway, the alarm
    assert done.state is State.DEAD and done.error is not None
    assert done.error["type"] == "PrerequisiteFailed" and items[1].id in done.error["message"]
    dead = await ol.ajob(items[1].id)
    assert (dead.state, dead.attempt) == (State.DEAD, 2)
    assert sorted(sent) == [1, 2] and alarms == {"outbox dead": 1}
    counts = await ol.acounts()
    assert {state for state, number in counts.items() if number} == {"succeeded", "dead"}
    assert (await ol.aflow(str(needs.flow))).state == "partial"
