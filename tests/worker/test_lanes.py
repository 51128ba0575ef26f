"""Workers of limited queues: slots, turns, order, rates, and what a handler may say about them."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, defaultdict
from contextlib import AsyncExitStack

import pytest

from outlast import (
    Context,
    DependencyDown,
    InvalidOption,
    Job,
    Outlast,
    Retry,
    RetryLater,
    State,
    group,
)
from outlast.model.settings import WorkerSettings
from outlast.ops.claim import ClaimRequest
from outlast.ops.lanes import ADOPTED_ROWS, TurnClaims, TurnLimits
from outlast.worker import capacity, finisher, lane_turns
from outlast.worker.lane_turns import LaneTurns
from outlast.worker.poller import Poller
from tests.support import Database, aeventually, eventually

from .working import Spy, ended, sql, work

QUICK = Retry(max_attempts=4, base=0.01, cap=0.02, jitter=0.0)


class Slots:
    """How many handlers of each lane run, and the most that ever did."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: list[str] = []

    async def hold(self, lane: str, seconds: float = 0.01, until: int = 0) -> None:
        """For so long, and until so many have run at once."""
        for name in (lane, "all"):
            self.running[name] += 1
            self.most[name] = max(self.most[name], self.running[name])
        await asyncio.sleep(seconds)
        await aeventually(lambda: self.most["all"] >= until)
        for name in (lane, "all"):
            self.running[name] -= 1
        self.done.append(lane)


async def finished(ol: Outlast, number: int) -> None:
    async def all_done() -> bool:
        counts = await ol.acounts()
        return counts["succeeded"] + counts["dead"] + counts["cancelled"] >= number

    await aeventually(all_done, 60.0)


async def test_workers_fill_the_slots_of_lanes_and_no_more(ol: Outlast) -> None:
    """R009, R147, R238: two workers with twenty slots, lanes of two, a queue of five."""
    slots = Slots()
    ol.queue("mail", running=5, lane_running=2)

    @ol.task(queue="mail", lane=lambda account, **_: account)
    async def send(account: str) -> None:
        await slots.hold(account, until=5)

    await ol.aenqueue(*(send.job(account) for account in "abcd" * 10))
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(work(ol, concurrency=10))
        await finished(ol, 40)
    assert slots.most == {"a": 2, "b": 2, "c": 2, "d": 2, "all": 5}


async def test_a_slot_that_is_freed_is_taken_at_once(ol: Outlast) -> None:
    """R147: never idle with room. One at a time, and no poll between them: the worker itself does
    not look for a minute."""
    slots = Slots()
    ol.queue("mail", running=1)

    @ol.task(queue="mail")
    async def send() -> None:
        await slots.hold("x", 0.0)

    await ol.aenqueue(*(send.job() for _ in range(30)))
    async with work(ol, concurrency=10, poll_min=59.0, poll_max=60.0):
        await finished(ol, 30)
    assert slots.most["all"] == 1


async def test_a_whale_does_not_keep_minnows_waiting(ol: Outlast) -> None:
    """R146, R239: with lane="tenant" alone."""
    slots = Slots()
    ol.queue("mail", lane="tenant")

    @ol.task(queue="mail")
    async def send(ctx: Context) -> None:
        await slots.hold(ctx.job.tenant, 0.001)

    await ol.aenqueue(*(send.using(tenant="whale").job() for _ in range(300)))
    await ol.aenqueue(*(send.using(tenant=f"minnow-{n}").job() for n in range(5) for _ in range(2)))
    async with work(ol, concurrency=4):
        await finished(ol, 310)
    last = max(n for n, tenant in enumerate(slots.done) if tenant != "whale")
    assert last < 40, "minnows take turns with the whale"


async def test_short_jobs_of_lanes_are_claimed_beyond_the_slots(
    ol: Outlast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R238, R241: so that a commit is shared by many, as of a plain queue; what is ahead is in its
    lane's limit."""
    slots, limit, number = 10, 15, 800
    monkeypatch.setattr(capacity, "AHEAD_S", 1000.0)  # however slow the machine is
    for module in (finisher, capacity):
        monkeypatch.setattr(module, "SHORT_HANDLER_S", 5.0)
    most: Counter[str] = Counter()

    @ol.task(queue="mail", lane=lambda lane: lane)
    async def send(lane: str) -> None:
        in_hand = Counter(job.claim.lane or "" for job in worker.in_flight._all())
        most.update({lane: n - most[lane] for lane, n in in_hand.items() if n > most[lane]})

    ol.limit("mail", lane_running=limit)
    await ol.aenqueue(*(send.job(f"lane-{n % 4}") for n in range(number)))
    async with work(ol, concurrency=slots) as worker:
        await finished(ol, number)
    assert max(most.values()) <= limit
    ((largest,),) = sql(database, LARGEST_CLAIM)
    assert slots < largest <= 4 * limit


LARGEST_CLAIM = (
    "SELECT max(jobs) FROM (SELECT count(*) AS jobs FROM {job} GROUP BY started_at) AS claims"
)


def test_a_claim_beyond_the_slots_is_for_lanes_in_turn() -> None:
    """R239: with room for more, lanes just freed would have turns between."""
    turns = LaneTurns()
    assert turns.ceiling("mail") == 0, "not seen yet"
    turns.update(["mail"], ["mail"])
    claims = TurnClaims()
    for in_turn, full, ceiling in ((128, False, 128), (128, True, math.inf), (0, False, 0)):
        claims.in_turn, claims.full = in_turn, full
        turns.claimed("mail", claims)
        assert turns.ceiling("mail") == ceiling


@pytest.mark.quiet
async def test_weighted_lanes_share_by_their_weights(ol: Outlast) -> None:
    """R239: weights 4:1 give 4:1, by the order in which jobs began."""
    order: list[str] = []
    ol.queue("mail", lane="tenant", weights={"gold": 4})

    @ol.task(queue="mail")
    async def send(ctx: Context) -> None:
        order.append(ctx.job.tenant)
        await asyncio.sleep(0.002)

    for tenant in ("gold", "iron"):
        await ol.aenqueue(*(send.using(tenant=tenant).job() for _ in range(200)))
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(work(ol, concurrency=3))
        await aeventually(lambda: len(order) >= 200, 60.0)
    first = Counter(order[:200])
    assert first["gold"] / first["iron"] == pytest.approx(4, rel=0.1)


async def test_the_order_in_each_lane_holds_across_failures(ol: Outlast) -> None:
    """R240: 100 lanes, every fourth attempt fails, two workers."""
    luck, seen = random.Random(3), defaultdict[str, list[int]](list)
    ol.queue("sync", ordered=True)

    @ol.task(queue="sync", lane=lambda account, **_: account, retry=QUICK)
    async def sync(account: str, n: int) -> None:
        if luck.random() < 0.25:
            raise OSError("once more")
        seen[account].append(n)

    calls = [sync.job(f"a{lane}", n) for n in range(4) for lane in range(100)]
    await ol.aenqueue(*calls)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(work(ol, concurrency=20))
        await finished(ol, 400)
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) + (await ol.acounts())["dead"] == 400


async def test_a_job_without_a_lane_is_found_behind_a_thousand_others(
    ol: Outlast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R238: a transaction may have enqueued it before its queue had limits. Those before it are in
    a lane that is paused; a look far back finds it, when the worker starts and now and then."""
    monkeypatch.setattr(lane_turns, "DEEP_ADOPT_INTERVAL_S", 0.2)
    ol.limit("mail", lane_running=1)
    ol.pause("mail", lane="held")

    @ol.task(queue="mail")
    async def send() -> None: ...

    held = send.using(lane="held", priority=5)
    await ol.aenqueue(*(held.job() for _ in range(ADOPTED_ROWS + 1)))

    async def enqueue_without_lane() -> Job:
        ol.pause("mail")
        job = await send.using(lane="b").aenqueue()
        sql(database, "UPDATE {job} SET lane = NULL WHERE id = ?", job.id)
        ol.resume("mail")
        return job

    first = await enqueue_without_lane()
    async with work(ol):
        assert (await ended(ol, first)).state is State.SUCCEEDED
        assert (await ended(ol, await enqueue_without_lane())).state is State.SUCCEEDED


@pytest.mark.quiet
@pytest.mark.parametrize(
    ("workers", "rate", "jobs"), [(3, 20, 70), pytest.param(10, 5, 150, marks=pytest.mark.campaign)]
)
async def test_a_rate_is_kept_by_all_workers_together(
    ol: Outlast, database: Database, workers: int, rate: int, jobs: int
) -> None:
    """R148: 20 a second, and 5 a second of ten workers, within 10 % by the database's clock."""
    ol.queue("mail", rate=f"{rate}/s", burst=2)

    @ol.task(queue="mail")
    async def send() -> None: ...

    await ol.aenqueue(*(send.job() for _ in range(jobs)))
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(work(ol, concurrency=5, poll_max=0.1))
        await finished(ol, jobs)
    moment = "started_at" if database.is_sqlite else "extract(epoch FROM started_at)"
    times = sorted(float(at) for (at,) in sql(database, f"SELECT {moment} FROM {{job}}"))
    reached = (len(times) - 2) / (times[-1] - times[0])
    print(f"{reached:.2f} a second")
    assert reached == pytest.approx(rate, rel=0.1)


def test_a_queue_with_a_rate_never_rests_longer_than_its_bucket_fills() -> None:
    """R148: tokens come without news, so it is asked again before the bucket overflows."""
    poller = Poller(["mail"], WorkerSettings(poll_max=60.0))
    poller.lanes.update(["mail"], ["mail"])
    for _ in range(20):
        request = ClaimRequest("w1", "mail", 5, 60.0, turn=poller.lanes.next("mail"))
        poller.claimed(request, TurnClaims(limits=TurnLimits(False, False, 0.1, None)), 0.001)
    eventually(lambda: poller.next_queues() == ("mail",), 5.0)


async def test_too_many_requests_slow_a_lane_down_and_cost_no_attempt(ol: Outlast) -> None:
    """R057, R148: a 429 paces the lane for all workers; then it recovers."""
    calls: list[tuple[str, int]] = []
    ol.queue("api", lane_rate="200/s")

    @ol.task(queue="api", lane=lambda account, **_: account, retry=Retry(max_attempts=1))
    async def call(account: str, n: int, ctx: Context) -> None:
        calls.append((account, n))
        if account == "slow" and len([one for one, _ in calls if one == "slow"]) == 1:
            await ctx.slow_down(1.0)
            raise RetryLater(0.0)

    jobs = await ol.aenqueue(*(call.job(account, n) for n in range(4) for account in ("slow", "b")))
    async with work(ol, concurrency=1):
        await finished(ol, 8)
    assert {(await ol.ajob(job.id)).state for job in jobs} == {State.SUCCEEDED}
    assert [account for account, _ in calls].index("b") < 3
    assert {account for account, _ in calls[-3:]} == {"slow"}


async def test_slow_down_without_a_lane_says_what_to_declare(ol: Outlast) -> None:
    @ol.task(retry=Retry(max_attempts=1))
    def call(ctx: Context) -> None:
        ctx.slow_down(3)

    job = await call.aenqueue()
    async with work(ol):
        done = await ended(ol, job)
    assert "ol.queue('default'" in str(done.error)


async def test_a_flow_and_a_batch_task_run_through_a_limited_queue(ol: Outlast) -> None:
    slots, batches = Slots(), list[list[int]]()
    ol.queue("mail", lane_running=2)

    @ol.task(queue="mail", lane="one")
    async def part(n: int) -> int:
        await slots.hold("one")
        return n

    @ol.task(queue="mail", batch=5, wait=0.01, lane=lambda item, **_: f"lane-{item % 3}")
    def many(items: list[int]) -> None:
        batches.append(items)

    await ol.aenqueue(group(*(part.job(n) for n in range(6))).then(part.job(7)))
    jobs = await ol.aenqueue(*(many.job(n) for n in range(12)))
    assert {job.lane for job in jobs} == {"lane-0", "lane-1", "lane-2"}
    async with work(ol, concurrency=10):
        await finished(ol, 19)
    assert slots.most["one"] == 2
    assert sorted(item for batch in batches for item in batch) == list(range(12))


async def test_a_breaker_in_a_limited_queue_is_probed_within_its_limits(ol: Outlast) -> None:
    down = True
    ol.queue("mail", lane_running=1)

    @ol.task(queue="mail", lane="one", retry=QUICK)
    async def send() -> None:
        if down:
            raise DependencyDown("away")

    jobs = await ol.aenqueue(*(send.job() for _ in range(3)))
    async with work(ol):
        await aeventually(lambda: bool(ol.breakers()))
        down = False
        await finished(ol, 3)
    assert {(await ol.ajob(job.id)).state for job in jobs} == {State.SUCCEEDED}


async def test_a_plain_queue_costs_no_statement_more(ol: Outlast) -> None:
    """Most queues have no limits: beside limited ones they are claimed as ever."""
    ol.queue("mail", running=1)
    spy = Spy(ol)

    @ol.task
    async def plain() -> None: ...

    await ol.aenqueue(*(plain.job() for _ in range(50)))
    async with work(ol, concurrency=10):
        await finished(ol, 50)
    lane_statements = {"lock_lanes", "claim_lanes", "claim_ordered_lanes", "adopt_jobs"}
    lane_statements |= {"lock_even_lanes", "claim_even_lanes"}
    assert lane_statements.isdisjoint(spy.counts)


def test_a_lane_function_that_fails_or_gives_no_name_is_refused(ol: Outlast) -> None:
    @ol.task(queue="mail", lane=lambda account, **_: account["id"])
    def send(account: str) -> None: ...

    @ol.task(queue="mail", lane=lambda account, **_: account)
    def count(account: int) -> None: ...

    with pytest.raises(InvalidOption, match="lane of the task send failed: TypeError"):
        send.enqueue("acme")
    with pytest.raises(InvalidOption, match="lane must be 1 to 200 characters"):
        count.enqueue(7)
    with pytest.raises(InvalidOption, match="lane"):
        send.using(lane="")
    named: Job = send.using(lane="acme").enqueue("x")
    assert named.lane == "acme"
    assert ol.counts()["ready"] == 1
