"""Very many queues: what a worker does for each of them, and how fast it is with 10,000."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest

from outlast import Outlast
from outlast.cli.doctor import host_facts
from outlast.model.settings import WorkerSettings
from outlast.ops.claim import ClaimRequest
from outlast.ops.doctor.checks import examine
from outlast.worker.poller import Poller
from outlast.worker.runner import MAX_UNKNOWN_NAMED
from tests.support import Database, aeventually

from .many_queues import drained, empty, fill, rate
from .working import SLACK, TIMINGS, Spy, sql, work


async def test_queues_with_one_job_each_do_not_cost_a_round_trip_each(
    ol: Outlast, database: Database
) -> None:
    """R216: they are claimed together, many in one statement."""
    ol.migrate()
    number = 200
    fill(database, number, 1)
    spy = Spy(ol)
    done, _ = await drained(ol, number, 20, concurrency=20)
    assert done == number
    claims = sum(spy.counts[name] for name in ("claim", "claim_on", "claim_across"))
    assert claims <= number / 2  # a busy machine fills its capacity in smaller parts


async def test_queues_of_unknown_tasks_are_left_alone(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R216, R010: junk of another tenant costs a few claims, and then a look now and then; not one
    claim for each queue, again and again, nor a list of all that is unknown with every claim."""
    ol.migrate()
    junk = 3 * MAX_UNKNOWN_NAMED
    fill(database, junk, 1, task="junk", prefix="junk", tenant="evil")
    sql(database, "UPDATE {job} SET task = queue")  # each of a task of its own
    fill(database, 1, 100, prefix="good")
    spy = Spy(ol)
    done, _ = await drained(ol, 100, 20, concurrency=10, poll_max=0.5)
    assert done == 100
    # A busy machine takes the good ones in smaller parts; but in fewer than there are junk queues.
    assert spy.counts["claim"] + spy.counts["claim_across"] < junk
    met = sum("is unknown to this worker" in record.message for record in caplog.records)
    assert met <= MAX_UNKNOWN_NAMED + 10
    assert sql(database, "SELECT count(*) FROM {job} WHERE state = 'ready' AND attempt = 0") == [
        (junk,)
    ]


async def test_breakers_in_many_queues_do_not_hold_up_another_queue(
    ol: Outlast, database: Database
) -> None:
    """R216, R223: one dependency that is away, and a queue for each tenant: those are asked
    together too, and rest."""
    ol.migrate()

    @ol.task(name="push")
    async def push() -> None: ...

    held = 400
    fill(database, held, 1, task="push", prefix="held")
    now, hour = ("strftime('%s')", 3600) if database.is_sqlite else ("now()", "interval '1 hour'")
    sql(
        database,
        "INSERT INTO {breaker}"
        " (queue, task, opening, kind, message, opened_by, opened_at, probe_at)"
        f" SELECT queue, task, queue, 'E', '', 'w', {now}, {now} + {hour} FROM {{job}}",
    )
    fill(database, 1, 100, prefix="good")
    spy = Spy(ol)
    done, _ = await drained(ol, 100, 20, concurrency=10)
    assert done == 100
    assert spy.counts["claim"] + spy.counts["claim_across"] <= held / 4


async def test_a_batch_that_was_not_full_does_not_halve_those_after_it(
    ol: Outlast, database: Database
) -> None:
    """R216: a queue gives fewer jobs than there is room for; the next claims are of full size all
    the same, where handlers end at once."""
    number = 960
    fill(database, 1, 24, prefix="a")
    fill(database, 1, number, prefix="b")
    spy = Spy(ol)
    done, _ = await drained(ol, number + 24, 20, concurrency=32)
    assert done == number + 24
    seen = sum(spy.counts[name] for name in ("claim", "claim_on", "succeed_and_claim_on"))
    claims = seen / 2 if database.is_sqlite else seen  # there, a spy sees each of them twice
    assert claims <= number / 32 + 10


async def test_a_resting_queue_is_asked_again_in_time(ol: Outlast, database: Database) -> None:
    """R216: one that held only unknown tasks for long gets a known one, without any news of it."""

    @ol.task
    async def known() -> int:
        return 7

    await known.using(queue="q").aenqueue()
    sql(database, "UPDATE {job} SET task = 'strange'")
    async with work(ol) as worker:
        rests = worker.source.poller._rotation._backoffs
        await aeventually(lambda: "q" in rests and rests["q"].empty_claims > 6)
        worker.on_notify = lambda _queue: None  # type: ignore[method-assign]
        began = time.monotonic()
        job = await known.using(queue="q").aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 7
        assert time.monotonic() - began < 2 * TIMINGS["poll_max"] + SLACK


@pytest.mark.kinds("postgres")
async def test_news_of_a_resting_queue_end_its_rest(ol: Outlast, database: Database) -> None:
    """R216: with polls that are a minute apart, a known task starts at once all the same."""

    @ol.task
    async def known() -> int:
        return 7

    await known.using(queue="q").aenqueue()
    sql(database, "UPDATE {job} SET task = 'strange'")
    async with work(ol, poll_min=30.0, poll_max=60.0) as worker:
        rests = worker.source.poller._rotation._backoffs
        await aeventually(lambda: worker.counts["released"] or worker.counts["unhandled"])
        await aeventually(lambda: not worker.in_flight)
        worker.on_notify("q")
        await aeventually(lambda: "q" in rests and rests["q"].until > time.monotonic() + 10)
        job = await known.using(queue="q").aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 7


async def test_queues_that_fail_together_are_asked_one_by_one(
    ol: Outlast, database: Database
) -> None:
    """R216, R019: a claim of many that is refused hides the one in trouble: it is found."""
    ol.migrate()
    fill(database, 30, 1)
    spy = Spy(ol)
    refusal = ValueError("nobody foresaw this")
    spy.refuse("claim", refusal, times=2, queue="q7")
    spy.refuse("claim_across", refusal, times=1)
    done, _ = await drained(ol, 29, 10, concurrency=10)
    assert done >= 29
    assert spy.counts["claim_across"] >= 1


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_ten_thousand_queues_are_as_fast_as_one(ol: Outlast, database: Database) -> None:
    """R216: 1,000 and 10,000 queues with one job and with 100 each, against one queue that holds as
    many jobs."""
    rates: list[tuple[int, int, float, float]] = []
    await rate(ol, database, 1, 1_000)  # the first run of a process pays for what is set up once
    for each in (1, 100):
        for queues in (1_000, 10_000):
            rounds = 3 if queues * each < 100_000 else 1  # short runs are noisy
            pairs = [
                (await rate(ol, database, queues, each), await rate(ol, database, 1, queues * each))
                for _ in range(rounds)
            ]
            many, one = (statistics.median(side) for side in zip(*pairs, strict=True))
            rates.append((queues, each, many, one))
    print(f"\n{database.kind:8}  queues  jobs each  jobs/s  of one queue  ratio")
    for queues, each, many, one in rates:
        print(f"{'':8}  {queues:6,}  {each:9,}  {many:6,.0f}  {one:12,.0f}  {one / many:5.2f}")
    assert all(many >= one / 2 for *_, many, one in rates)


@pytest.mark.campaign
async def test_three_thousand_junk_queues_slow_nobody(ol: Outlast, database: Database) -> None:
    """R216: 300 jobs beside 3,000 queues of another tenant's unknown tasks take ≤ 2× alone."""
    ol.migrate()
    times = []
    for junk in (0, 3_000):
        empty(database)
        if junk:
            fill(database, junk, 1, task="junk", prefix="junk", tenant="evil")
        fill(database, 1, 300, prefix="good")
        done, took = await drained(ol, 300, 60, concurrency=4)
        assert done == 300
        times.append(took)
        print(f"\n{database.kind}: {junk:,} junk queues: 300 jobs in {took:.2f} s")
    assert times[1] <= 2 * times[0] + 0.5


@pytest.mark.campaign
async def test_ten_thousand_queues_do_not_choke_those_who_look(
    ol: Outlast, database: Database
) -> None:
    """R216, R166: the list of queues, the counts and the doctor."""
    ol.migrate()
    fill(database, 10_000, 2)

    def doctor() -> object:
        return ol.store.run(examine, host_facts(ol.store))

    for name, ask in (("queues", ol.queues), ("counts", ol.counts), ("doctor", doctor)):
        began = time.monotonic()
        ask()
        took = time.monotonic() - began
        print(f"\n{database.kind}: {name} with 10,000 queues: {took * 1000:.0f} ms")
        assert took < 2.0 + SLACK
    await asyncio.sleep(0)


def test_queues_with_long_lines_of_held_jobs_are_asked_together_in_small_groups() -> None:
    """R216, R223: a claim walks over what is held back; outcomes wait for it meanwhile."""
    lookout = Poller(None, WorkerSettings())
    queues = [f"q{n}" for n in range(500)]
    lookout.held = dict.fromkeys(queues, frozenset({"push"}))
    lookout.held = {**lookout.held, "q200": frozenset({"other"})}
    for queue in queues:
        lookout.notify(queue)

    def asked(took: float) -> int:
        first, *others = lookout.next_queues()
        wanted = ClaimRequest("w", first, 10, 15.0, other_queues=tuple(others))
        lookout.claimed(wanted, [], took)
        assert len({lookout.held[queue] for queue in wanted.queues}) == 1
        return len(wanted.queues)

    assert [asked(took) for took in (1.0, 1.0, 0.05, 0.01, 0.01)] == [100, 25, 6, 6, 12]
