"""Batch tasks: many jobs in one call, each with its own end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlast import (
    BatchContext,
    BatchFailed,
    Contention,
    Job,
    NotAttempted,
    Outlast,
    OutlastError,
    Permanent,
    Retry,
    RetryLater,
    StoreUnavailable,
)
from tests.support import Database, aeventually

from .working import Spy, ended, sql, work

QUICK = Retry(max_attempts=3, base=0.01, cap=0.01, jitter=0.0)
LONG = 30.0  # seconds of wait that no test waits for


async def all_ended(ol: Outlast, jobs: Iterable[Job]) -> list[Job]:
    return [await ended(ol, job, 20.0) for job in jobs]


async def test_one_item_that_fails_is_the_only_one_that_is_tried_again(
    ol: Outlast, tmp_path: Path
) -> None:
    """R055: 500 files are to be written, and a folder stands in the way of number 250."""
    in_the_way = tmp_path / "250"
    in_the_way.mkdir()
    calls: list[list[int]] = []

    @ol.task(batch=500, wait=LONG, retry=Retry(max_attempts=3, base=0.2, jitter=0.0))
    def write(items: list[int]) -> list[int]:
        calls.append(items)
        errors: dict[int, Exception] = {}
        for index, item in enumerate(items):
            try:
                (tmp_path / str(item)).write_text("x" * item)
            except OSError as error:
                errors[index] = error
        if errors:
            in_the_way.rmdir()
            raise BatchFailed(errors, results=items)
        return items

    jobs = await ol.aenqueue(*(write.job(n) for n in range(499)))
    async with work(ol):
        await aeventually(lambda: _running(ol, 499))
        jobs.append(await write.aenqueue(499))
        await aeventually(lambda: _returned(ol.acounts(), succeeded=499))
        filler = await ol.aenqueue(*(write.job(n) for n in range(500, 999)))
        last = await all_ended(ol, [*jobs, *filler])
    assert [len(call) for call in calls] == [500, 500]
    assert {(job.state, job.attempt, job.failures) for job in last if job.args["item"] != 250} == {
        ("succeeded", 1, 0)
    }
    again = last[250]
    assert (again.state, again.attempt, again.failures, again.result) == ("succeeded", 2, 1, 250)
    assert [job.result for job in last] == list(range(999))
    attempts, _ = await ol.ahistory(again.id)
    assert [each.outcome for each in attempts] == ["failed", "succeeded"]
    assert "IsADirectoryError" in attempts[0].error["type"]
    assert {n for n in range(999) if (tmp_path / str(n)).is_file()} == set(range(999))


async def _running(ol: Outlast, number: int) -> bool:
    return (await ol.acounts())["running"] == number


async def _returned(counting: Any, **expected: int) -> bool:
    counts = await counting
    return all(counts[state] == number for state, number in expected.items())


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_poison_row_in_a_batched_write_is_found(
    ol: Outlast, tmp_path: Path, colour: str
) -> None:
    """R056: one of a hundred violates a constraint of the sink, whose transaction names no row: 99
    are stored, once each, and the one is dead with the reason."""
    sink = tmp_path / "sink.db"
    with closing(sqlite3.connect(sink)) as database:
        database.execute("CREATE TABLE stored (n INTEGER CONSTRAINT not_42 CHECK (n <> 42))")
    calls: list[int] = []

    def store(items: list[int]) -> None:
        calls.append(len(items))
        with closing(sqlite3.connect(sink)) as database, database:
            database.executemany("INSERT INTO stored VALUES (?)", [(item,) for item in items])

    async def astore(items: list[int]) -> None:
        store(items)

    chosen = store if colour == "sync" else astore
    task = ol.task(batch=100, wait=LONG, retry=QUICK, name="store")(chosen)
    jobs = await ol.aenqueue(*(task.job(n) for n in range(100)))
    async with work(ol):
        await aeventually(lambda: _returned(ol.acounts(), succeeded=99))
        assert sum(calls) < 100 + 200 and len(calls) <= 1 + 2 * 7
        more = await ol.aenqueue(*(task.job(n) for n in range(100, 199)))  # the retries join them
        last = await all_ended(ol, [*jobs, *more])
    dead = [job for job in last if job.state == "dead"]
    assert [(job.args, job.attempt, job.failures) for job in dead] == [({"item": 42}, 3, 3)]
    assert dead[0].error is not None and "not_42" in dead[0].error["message"]
    assert {job.attempt for job in last if job not in dead} == {1}
    with closing(sqlite3.connect(sink)) as database:
        rows = [n for (n,) in database.execute("SELECT n FROM stored ORDER BY n")]
    assert rows == [n for n in range(199) if n != 42]


async def test_a_batch_is_as_large_as_it_may_be_and_waits_no_longer_than_it_may(
    ol: Outlast,
) -> None:
    """R055, R141: never more than `batch`; what is left goes when `wait` is over."""
    calls: list[tuple[float, list[int]]] = []

    @ol.task(batch=10, wait=0.3)
    async def gather(items: list[int]) -> None:
        calls.append((time.monotonic(), items))

    jobs = await ol.aenqueue(*(gather.job(n) for n in range(25)))
    began = time.monotonic()
    async with work(ol):
        await all_ended(ol, jobs)
        assert [len(items) for _, items in calls] == [10, 10, 5]
        assert [n for _, items in calls for n in items] == list(range(25)), "in the queue's order"
        assert calls[2][0] - began >= 0.3
        first = await gather.aenqueue(25)
        await aeventually(lambda: _running(ol, 1))
        second = await gather.aenqueue(26)
        await all_ended(ol, [first, second])
        assert calls[3][1] == [25, 26], "what comes within the wait goes along"


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_batch_may_be_larger_than_the_concurrency(ol: Outlast, concurrency: int) -> None:
    """R055: all items of a batch take one slot, and the gathering claims enough."""
    calls: list[int] = []
    at_once = most = 0

    @ol.task(batch=100, wait=LONG)
    async def gather(items: list[int]) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        calls.append(len(items))
        await asyncio.sleep(0.05)
        at_once -= 1

    spy = Spy(ol)
    jobs = await ol.aenqueue(*(gather.job(n) for n in range(250)))
    async with work(ol, concurrency=concurrency):
        await aeventually(lambda: _returned(ol.acounts(), succeeded=200))
        assert calls == [100, 100]
        once = spy.counts["register_worker"]
        assert spy.counts["claim"] + spy.counts["claim_items"] <= 20 * once, "not one by one"
        more = await ol.aenqueue(*(gather.job(n) for n in range(250, 300)))
        await all_ended(ol, [*jobs, *more])
    assert calls == [100, 100, 100]
    assert most <= concurrency


async def test_ordinary_tasks_and_batches_share_a_worker_and_a_queue(ol: Outlast) -> None:
    """R055: nobody starves, and together they keep to the concurrency."""
    at_once: Counter[str] = Counter()
    most = 0
    sizes: list[int] = []

    async def busy(what: str) -> None:
        nonlocal most
        at_once[what] += 1
        most = max(most, at_once.total())
        await asyncio.sleep(0.01)
        at_once[what] -= 1

    @ol.task
    async def single(n: int) -> int:
        await busy("single")
        return n

    @ol.task(batch=20, wait=0.05)
    async def together(items: list[int]) -> list[int]:
        sizes.append(len(items))
        await busy("batch")
        return items

    @ol.task(batch=7, wait=0.0)
    def in_thread(items: list[int]) -> None:
        sizes.append(0)

    calls = [task.job(n) for n in range(100) for task in (single, together, in_thread)]
    jobs = await ol.aenqueue(*calls)
    async with work(ol, concurrency=3) as worker:
        last = await all_ended(ol, jobs)
        assert not worker.in_flight and worker.executor.batches.slots == 0
    assert {job.state for job in last} == {"succeeded"}
    assert {job.attempt for job in last} == {1}
    assert most <= 3
    assert max(sizes) > 3, "batches are gathered past the concurrency in a mixed queue too"


async def test_the_outcomes_of_a_batch_go_back_in_one_round_trip(ol: Outlast) -> None:
    """R055"""

    @ol.task(batch=200, wait=LONG)
    async def gather(items: list[int]) -> None:
        pass

    spy = Spy(ol)
    jobs = await ol.aenqueue(*(gather.job(n) for n in range(200)))
    async with work(ol):
        await all_ended(ol, jobs)
    assert spy.counts["succeed"] == spy.counts["register_worker"], "once"


async def test_how_each_item_ends_is_what_the_handler_said_of_it(ol: Outlast) -> None:
    """R048, R055: a sentence, an exception, a permanent one, a postponed one."""
    errors = {
        1: "a sentence",
        2: ValueError("an exception"),
        3: Permanent("never"),
        4: RetryLater(3600.0, "tomorrow"),
    }

    @ol.task(batch=6, wait=LONG, max_attempts=1)
    async def mixed(items: list[int], ctx: BatchContext) -> None:
        raise BatchFailed(errors, results=[n * 10 for n in items])

    jobs = await ol.aenqueue(*(mixed.job(n) for n in range(6)))
    async with work(ol):
        good = await all_ended(ol, [jobs[0], jobs[5]])
        bad = await all_ended(ol, jobs[1:4])
        later = await ol.ajob(jobs[4].id)
    assert [(job.state, job.result) for job in good] == [("succeeded", 0), ("succeeded", 50)]
    assert [job.state for job in bad] == ["dead"] * 3
    told = [job.error["message"] for job in bad if job.error]
    assert told == ["a sentence", "an exception", "never"]
    assert (later.state, later.failures) == ("scheduled", 0)
    outcomes = [(await ol.ahistory(job.id))[0][0].outcome for job in jobs[1:5]]
    assert outcomes == ["failed", "failed", "permanent", "postponed"]


@pytest.mark.parametrize(
    ("said", "outcome", "sentence"),
    [
        ([1], "permanent", "returned a list of 1: a batch of 3 returns None or a list of 3"),
        (7, "permanent", "returned int: a batch of 3 returns None or a list of 3 results"),
        (BatchFailed({3: "x"}), "failed", "names item 3: this call had items 0 to 2"),
        (BatchFailed({0: "x"}, results=[1]), "failed", "results that are not a list of 3"),
    ],
)
async def test_what_nobody_can_tell_apart_is_an_error_that_says_so(
    ol: Outlast, said: Any, outcome: str, sentence: str
) -> None:
    """R055"""

    @ol.task(batch=3, wait=LONG, max_attempts=1)
    def wrong(items: list[int]) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    jobs = await ol.aenqueue(*(wrong.job(n) for n in range(3)))
    async with work(ol):
        for job in await all_ended(ol, jobs):
            assert job.state == "dead" and job.error is not None
            assert sentence in job.error["message"]
            attempts, _ = await ol.ahistory(job.id)
            assert [each.outcome for each in attempts] == [outcome]


async def test_an_outage_that_the_handler_knows_costs_no_item_anything(
    ol: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    """R054: all are postponed, unspent, and nobody is searched for; each call leaves one record and
    one log line, not one for each item."""
    calls: list[int] = []
    up = False

    @ol.task(batch=50, wait=LONG, max_attempts=1)
    async def publish(items: list[int]) -> None:
        calls.append(len(items))
        if not up:
            raise RetryLater(0.2, "the sink is down")

    jobs = await ol.aenqueue(*(publish.job(n) for n in range(50)))
    async with work(ol):
        await aeventually(lambda: _told(len(calls) >= 3))
        down = len(calls)
        up = True
        last = await all_ended(ol, jobs)
    assert set(calls) == {50}, "together every time"
    assert {(job.state, job.failures) for job in last} == {("succeeded", 0)}
    outcomes = [each.outcome for job in jobs for each in (await ol.ahistory(job.id))[0]]
    assert outcomes.count("postponed") == down
    assert len(outcomes) <= 2 * down, "and those who have a record end with one"
    assert caplog.text.count("postponed, now scheduled") == down


async def _told(value: object) -> bool:
    return bool(value)


async def test_without_a_breaker_an_outage_is_one_failure_for_each_and_few_calls(
    ol: Outlast,
) -> None:
    """R054, R056: when everything fails it is no item's fault: the search ends soon."""
    calls: list[int] = []
    up = False

    @ol.task(batch=200, wait=LONG, breaker=None, retry=Retry(max_attempts=3, base=0.3, jitter=0.0))
    async def publish(items: list[int]) -> None:
        calls.append(len(items))
        if not up:
            raise ConnectionError("refused")

    jobs = await ol.aenqueue(*(publish.job(n) for n in range(200)))
    async with work(ol):
        await aeventually(lambda: _returned(ol.acounts(), scheduled=200))
        assert len(calls) == 17
        up = True
        last = await all_ended(ol, jobs)
    assert {(job.state, job.failures) for job in last} == {("succeeded", 1)}
    assert len(calls) == 18, "and they are tried again together"


async def test_a_row_that_cannot_be_read_goes_dead_alone(ol: Outlast, database: Database) -> None:
    """R013: it is no part of the call."""
    seen: list[int] = []

    @ol.task(batch=5, wait=LONG)
    async def gather(items: list[int]) -> None:
        seen.extend(items)

    jobs = await ol.aenqueue(*(gather.job(n) for n in range(5)))
    sql(database, "UPDATE {job} SET args = ? WHERE id = ?", '{"item": "x"}', jobs[1].id)
    async with work(ol):
        last = await all_ended(ol, jobs)
    assert [job.state for job in last] == ["succeeded", "dead", *["succeeded"] * 3]
    assert last[1].error is not None and last[1].error["type"] == "Undecodable"
    assert "item: Input should be a valid integer" in last[1].error["message"]
    assert seen == [0, 2, 3, 4]


async def test_what_an_item_says_and_enqueues_is_its_own(ol: Outlast) -> None:
    """R055: a follow-up exists if, and only if, its item succeeds; however often it was called."""

    @ol.task
    async def follow(n: int) -> None:
        pass

    @ol.task(batch=4, wait=LONG, max_attempts=1)
    async def gather(items: list[int], ctx: BatchContext) -> None:
        for item, own in zip(items, ctx.items, strict=True):
            assert json.loads(json.dumps(own.job.args)) == {"item": item}
            assert (own.attempt, own.fence) == (1, 1)
            own.enqueue(follow.job(item))
            own.log("seen", item=item)
        if 2 in items:
            raise ValueError("two")

    jobs = await ol.aenqueue(*(gather.job(n) for n in range(4)))
    async with work(ol):
        last = await all_ended(ol, jobs)
        assert [job.state for job in last] == ["succeeded", "succeeded", "dead", "succeeded"]
        followers = await ol.ajobs(task="follow")
        assert sorted(job.args["n"] for job in followers) == [0, 1, 3]
        _, events = await ol.ahistory(jobs[3].id)
        assert {event.data["item"] for event in events if event.kind == "log"} == {3}


@pytest.mark.parametrize("error", [Contention, StoreUnavailable])
async def test_a_batch_that_cannot_be_filled_is_carried_out_as_it_is(
    ol: Outlast, hasty: None, error: type[OutlastError]
) -> None:
    """R055: the database refuses what the gathering asks for: nobody waits for ever."""
    calls: list[int] = []

    @ol.task(batch=100, wait=0.05)
    async def gather(items: list[int]) -> None:
        calls.append(len(items))

    spy = Spy(ol)
    spy.refuse("claim_items", error(reason="on purpose"), times=4)
    jobs = await ol.aenqueue(*(gather.job(n) for n in range(30)))
    async with work(ol, concurrency=4):
        last = await all_ended(ol, jobs)
    assert {job.state for job in last} == {"succeeded"}
    assert sum(calls) == 30


async def test_an_item_that_was_not_attempted_keeps_its_place(ol: Outlast) -> None:
    """R038: it goes back unspent, and at once: what is due after it must not overtake it."""
    calls = 0

    @ol.task(batch=2, max_attempts=1)
    async def store(items: list[int]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BatchFailed({len(items) - 1: NotAttempted()})

    jobs = await ol.aenqueue(store.job(1), store.job(2))
    async with work(ol):
        done = [await ended(ol, job) for job in jobs]
    assert calls > 1
    assert [(one.state, one.attempt, one.failures) for one in done] == [("succeeded", 1, 0)] * 2
    assert [one.run_at for one in done] == [one.run_at for one in jobs]
