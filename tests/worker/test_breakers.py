"""Circuit breakers: an outage stops a task's calls, and costs its jobs nothing."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from outlast import Breaker, DependencyDown, Outlast, Retry, StoreUnavailable
from tests.support import Database, aeventually
from tests.worker.working import Spy, ended, sql, work

LONG = 0.2  # seconds to wait for a batch
QUICK = Breaker(probe_first=0.05, probe_cap=0.1)
SLOW = Breaker(probe_first=60.0, probe_cap=60.0)
IMPATIENT = Retry(max_attempts=3, base=0.01, cap=0.02, jitter=0.0)


class Sink:
    """A dependency that can be away."""

    def __init__(self, up: bool = False) -> None:
        self.up = up
        self.calls = 0
        self.got: Counter[int] = Counter()

    def take(self, *items: int, error: Exception | None = None) -> None:
        self.calls += 1
        if not self.up:
            raise error or ConnectionError("refused")
        self.got.update(items)


async def called(sink: Sink, times: int) -> None:
    async def look() -> bool:
        return sink.calls >= times

    await aeventually(look, 20, message=lambda: f"{sink.calls} calls")


async def opened(ol: Outlast, number: int = 1) -> None:
    async def look() -> bool:
        return len(await ol.abreakers()) == number

    await aeventually(look, 20, message=lambda: f"{ol.counts()} {ol.breakers()}")


async def all_succeeded(ol: Outlast, number: int, timeout: float = 20.0) -> None:
    async def look() -> bool:
        return (await ol.acounts())["succeeded"] == number

    await aeventually(look, timeout, message=lambda: f"{ol.counts()} {ol.breakers()}")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of breakers."""
    lines = [record.getMessage() for record in caplog.records]
    return [line.split(":")[0] for line in lines if line.startswith("breaker")]


def events(database: Database) -> list[str]:
    rows = sql(database, "SELECT kind FROM {event} WHERE job IS NULL ORDER BY seq")
    return [kind for (kind,) in rows if kind.startswith("breaker")]


async def test_a_dependency_that_is_away_for_ten_budgets_costs_no_job_its_life(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R054, R223: plain connection errors of single jobs; few calls, few records, two log lines."""
    caplog.set_level(logging.INFO)
    sink = Sink()

    @ol.task(retry=IMPATIENT, breaker=QUICK)
    async def push(n: int) -> None:
        sink.take(n)

    await ol.aenqueue(*(push.job(n) for n in range(300)))
    async with work(ol, concurrency=20):
        await opened(ol)
        await called(sink, sink.calls + 30)  # ten times what a job may fail, by probes alone
        counts = await ol.acounts()
        assert counts["dead"] == 0 and counts["ready"] > 270
        sink.up = True
        await all_succeeded(ol, 300)
    assert sink.got == Counter(range(300))
    assert max(job.failures for job in await ol.ajobs()) <= 1
    assert sql(database, "SELECT count(*) FROM {attempt}")[0][0] <= 25
    assert said(caplog) == ["breaker open", "breaker closed"]
    assert len([r for r in caplog.records if r.name == "outlast.worker"]) <= 25
    assert events(database) == ["breaker-opened", "breaker-closed"]


@pytest.mark.parametrize("kind", [ConnectionRefusedError, TimeoutError, RuntimeError])
async def test_a_whole_batch_that_fails_with_one_error_costs_no_item_anything(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    """R054, R223: also a plain error, which the search for a bad item finds in no item."""
    caplog.set_level(logging.INFO)
    sink = Sink()

    @ol.task(batch=100, wait=0.05, max_attempts=1, breaker=QUICK)
    async def publish(items: list[int]) -> None:
        sink.take(*items, error=kind("away"))

    await ol.aenqueue(*(publish.job(n) for n in range(300)))
    async with work(ol):
        await opened(ol)
        await called(sink, sink.calls + 10)
        assert (await ol.acounts())["dead"] == 0
        sink.up = True
        await all_succeeded(ol, 300)
    assert sink.got == Counter(range(300))
    assert sql(database, "SELECT count(*) FROM {attempt}")[0][0] <= 20
    assert said(caplog) == ["breaker open", "breaker closed"]
    assert len([r for r in caplog.records if r.name == "outlast.worker"]) <= 20


async def test_a_handler_that_knows_opens_it_with_the_first_call(
    ol: Outlast, database: Database
) -> None:
    """R054: DependencyDown costs nothing, not even a job that may be tried once."""
    sink = Sink()

    @ol.task(max_attempts=1, breaker=QUICK)
    async def push(n: int) -> None:
        sink.take(n, error=DependencyDown("maintenance"))

    jobs = await ol.aenqueue(*(push.job(n) for n in range(20)))
    async with work(ol, concurrency=1):
        await opened(ol)
        state = (await ol.abreakers())[0]
        assert (state.queue, state.task) == ("default", "push")
        assert state.reason == "outlast.model.errors.DependencyDown: maintenance"
        await called(sink, 5)
        sink.up = True
        await all_succeeded(ol, 20)
    assert {job.failures for job in await ol.ajobs()} == {0}
    assert [(await ol.ahistory(job.id))[0] for job in jobs[1:]] == [[]] * 19


@pytest.mark.kinds("sqlite")
async def test_a_job_that_always_fails_alone_is_dead_by_its_own_budget(ol: Outlast) -> None:
    """R054, R055: it is one job, so it is no outage; also where nothing else is to be done."""

    @ol.task(retry=IMPATIENT)
    async def push(host: str) -> None:
        if host == "gone":
            raise ConnectionError(host)

    lost = await push.aenqueue("gone")
    async with work(ol):
        assert (await ended(ol, lost)).state == "dead"
        second = (await ol.aenqueue(push.job("gone"), *(push.job("here") for _ in range(20))))[0]
        assert (await ended(ol, second)).state == "dead"
        await all_succeeded(ol, 20)
        assert await ol.abreakers() == []


@pytest.mark.kinds("sqlite")
async def test_a_bad_item_among_good_ones_does_not_open_it(ol: Outlast) -> None:
    """R055: its connection error is found to be its own."""

    @ol.task(batch=50, wait=LONG, retry=IMPATIENT)
    async def publish(items: list[int]) -> None:
        if 25 in items:
            raise ConnectionError("no such host")

    jobs = await ol.aenqueue(*(publish.job(n) for n in range(50)))
    async with work(ol):
        await all_succeeded(ol, 49)
        assert (await ended(ol, jobs[25])).state == "dead"
        assert await ol.abreakers() == []


@pytest.mark.kinds("sqlite")
async def test_bad_items_in_both_halves_end_although_they_look_like_an_outage(
    ol: Outlast,
) -> None:
    """R054, R055: a probe succeeds, so the next time the items pay for what they do."""
    bad = {3, 40}

    @ol.task(batch=50, wait=LONG, retry=IMPATIENT, breaker=QUICK)
    async def publish(items: list[int]) -> None:
        if bad & set(items):
            raise ConnectionError("no such host")

    await ol.aenqueue(*(publish.job(n) for n in range(50)))
    async with work(ol):
        await all_succeeded(ol, 48)

        async def dead() -> bool:
            return (await ol.acounts())["dead"] == 2

        await aeventually(dead, 20, message=lambda: f"{ol.counts()} {ol.breakers()}")


@pytest.mark.kinds("sqlite")
async def test_a_long_run_of_jobs_that_cannot_succeed_does_not_hold_up_the_others(
    ol: Outlast,
) -> None:
    """R054: probes are the first and any other of the queue in turn."""

    @ol.task(retry=IMPATIENT, breaker=QUICK)
    async def push(host: str) -> None:
        if host == "gone":
            raise ConnectionError(host)

    await ol.aenqueue(*(push.job("gone") for _ in range(30)))
    await ol.aenqueue(*(push.job("here") for _ in range(30)))
    async with work(ol, concurrency=5):
        await all_succeeded(ol, 30)


async def test_another_task_of_the_queue_goes_on(ol: Outlast) -> None:
    """R120, R223: a breaker is for one task in one queue."""

    @ol.task(breaker=SLOW)
    async def push(n: int) -> None:
        raise DependencyDown("away")

    @ol.task
    async def count(n: int) -> None: ...

    async with work(ol):
        await ol.aenqueue(*(push.job(n) for n in range(50)))
        await opened(ol)
        await ol.aenqueue(*(count.job(n) for n in range(50)))
        await ol.aenqueue(*(push.using(queue="other").job(n) for n in range(2)))
        await all_succeeded(ol, 50)
        await opened(ol, 2)
    assert {(one.queue, one.task) for one in await ol.abreakers()} == {
        ("default", "push"),
        ("other", "push"),
    }


async def test_only_one_probe_of_the_fleet_is_under_way(ol: Outlast) -> None:
    """R223: of three workers, while the probe takes its time."""
    running, most, sink = 0, 0, Sink()

    @ol.task(breaker=QUICK)
    async def push(n: int) -> None:
        nonlocal running, most
        running += 1
        if await ol.abreakers():
            most = max(most, running)
        try:
            await asyncio.sleep(0.15)
            sink.take(n, error=DependencyDown("away"))
        finally:
            running -= 1

    await push.aenqueue(0)
    async with work(ol) as one, work(ol) as two, work(ol) as three:
        fleet = (one, two, three)
        await aeventually(lambda: _true(all(each.executor.breakers.open for each in fleet)), 20)
        await ol.aenqueue(*(push.job(n) for n in range(1, 30)))
        await called(sink, 6)
        assert most == 1
        sink.up = True
        await all_succeeded(ol, 30)


async def test_two_workers_that_find_the_outage_at_once_open_it_once(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R120, R223"""
    both, sink = asyncio.Barrier(2), Sink()

    @ol.task(breaker=Breaker(probe_first=0.3))
    async def push(n: int) -> None:
        if not sink.up and sink.calls < 2:
            await both.wait()
        sink.take(n, error=DependencyDown("away"))

    await ol.aenqueue(push.job(1), push.job(2))
    async with work(ol, concurrency=1), work(ol, concurrency=1):
        await opened(ol)
        await called(sink, 2)
        sink.up = True
        await all_succeeded(ol, 2)
    assert said(caplog) == ["breaker open", "breaker closed"]
    assert events(database) == ["breaker-opened", "breaker-closed"]


async def test_an_outage_of_the_database_while_it_opens_does_not_keep_it_closed(
    ol: Outlast, hasty: None
) -> None:
    """R120: the failures that opened it are not forgotten: it is open when that can be written."""
    sink, spy = Sink(), Spy(ol)
    spy.refuse("open_breaker", StoreUnavailable(reason="gone"), times=3)

    @ol.task(retry=IMPATIENT, breaker=Breaker(failures=2, probe_first=60.0, probe_cap=60.0))
    async def push(n: int) -> None:
        sink.take(n)

    await ol.aenqueue(*(push.job(n) for n in range(30)))
    async with work(ol, concurrency=2):
        await opened(ol)
        assert not spy.refusing("open_breaker")
        assert sink.calls <= 4, "and nothing was called meanwhile"
        assert (await ol.acounts())["dead"] == 0


async def test_an_outage_of_the_database_while_it_closes_does_not_keep_it_open(
    ol: Outlast, hasty: None
) -> None:
    """R120, R223"""
    sink, spy = Sink(), Spy(ol)
    spy.refuse("close_breaker", StoreUnavailable(reason="gone"), times=3)

    @ol.task(breaker=QUICK)
    async def push(n: int) -> None:
        sink.take(n, error=DependencyDown("away"))

    await ol.aenqueue(*(push.job(n) for n in range(5)))
    async with work(ol):
        await opened(ol)
        sink.up = True
        await all_succeeded(ol, 5)
        await opened(ol, 0)


async def test_it_outlives_the_workers(ol: Outlast) -> None:
    """R120, R223: a new worker knows it before its first claim; a resume by hand is on record."""
    sink = Sink()

    @ol.task(breaker=SLOW)
    async def push(n: int) -> None:
        sink.take(n, error=DependencyDown("away"))

    await ol.aenqueue(*(push.job(n) for n in range(10)))
    async with work(ol, concurrency=1):
        await opened(ol)
    assert sink.calls == 1
    spy = Spy(ol)
    async with work(ol) as second:
        await aeventually(lambda: _true(spy.counts["claim"] > 2), 20)
        assert sink.calls == 1 and second.executor.breakers.open
        sink.up = True
        assert await ol.aclose_breaker("default", "push") == 1
        assert await ol.aclose_breaker("default", "push") == 0
        await all_succeeded(ol, 10)


@pytest.mark.kinds("sqlite")
async def test_after_a_close_the_count_begins_anew(ol: Outlast) -> None:
    """R120: re-arms: the next outage opens it again."""
    sink = Sink()

    @ol.task(retry=Retry(max_attempts=5, base=0.01, cap=0.02), breaker=QUICK)
    async def push(n: int) -> None:
        sink.take(n)

    async with work(ol):
        for round in (1, 2):
            sink.up = False
            await ol.aenqueue(*(push.job(n) for n in range(20)))
            await opened(ol)
            sink.up = True
            await all_succeeded(ol, 20 * round)
            await opened(ol, 0)


@pytest.mark.kinds("sqlite")
async def test_without_a_breaker_failures_are_as_ever(ol: Outlast) -> None:
    """R054: `breaker=None`. DependencyDown then means: later, unspent."""
    down = True

    @ol.task(retry=IMPATIENT, breaker=None)
    async def push(n: int) -> None:
        raise ConnectionError("refused")

    @ol.task(max_attempts=1, breaker=None)
    async def pull(n: int) -> None:
        if down:
            raise DependencyDown("away")

    await ol.aenqueue(*(push.job(n) for n in range(20)))
    later = await pull.aenqueue(1)
    async with work(ol):

        async def dead() -> bool:
            return (await ol.acounts())["dead"] == 20

        await aeventually(dead, 20)
        down = False
        assert (await ended(ol, later)).state == "succeeded"
        assert await ol.abreakers() == []


async def test_a_cancel_reaches_a_job_that_is_held_back(ol: Outlast) -> None:
    """R120: and so do pause, resume and a redrive; the breaker stays as it is."""

    @ol.task(breaker=SLOW)
    async def push(n: int) -> None:
        raise DependencyDown("away")

    jobs = await ol.aenqueue(*(push.job(n) for n in range(3)))
    async with work(ol, concurrency=1):
        await opened(ol)
        assert (await ol.acancel(jobs[2].id)).state == "cancelled"
        assert (await ol.aretry(jobs[2].id)).state == "ready"
        await ol.apause("default")
        await ol.aresume("default")
        assert len(await ol.abreakers()) == 1
        assert "breaker" in await ol.aexplain(jobs[2].id)


async def test_a_worker_that_stops_while_it_probes_leaves_the_probe_to_others(ol: Outlast) -> None:
    """R223: the probe goes back unspent, and with it the right to probe."""
    sink, probing = Sink(), asyncio.Event()

    @ol.task(breaker=QUICK)
    async def push(n: int) -> None:
        if sink.calls and not sink.up:
            probing.set()
            await asyncio.sleep(60)
        sink.take(n, error=DependencyDown("away"))

    await ol.aenqueue(*(push.job(n) for n in range(5)))
    async with work(ol, concurrency=1, grace=0.0):
        await asyncio.wait_for(probing.wait(), 20)
    sink.up = True
    async with work(ol):
        await all_succeeded(ol, 5)


async def test_a_clock_that_stepped_back_does_not_keep_it_open(
    ol: Outlast, database: Database
) -> None:
    """R213, R223: a probe tells whether the dependency is back, although it seems to have begun
    before the breaker opened."""
    sink = Sink()

    @ol.task(breaker=SLOW)
    async def push(n: int) -> None:
        sink.take(n, error=DependencyDown("away"))

    await ol.aenqueue(*(push.job(n) for n in range(5)))
    async with work(ol, concurrency=2):
        await opened(ol)
        sink.up = True
        hour = "3600" if database.is_sqlite else "interval '1 hour'"
        step = f"opened_at = opened_at + {hour}, probe_at = probe_at + {hour}"
        sql(database, f"UPDATE {{breaker}} SET {step}")
        await all_succeeded(ol, 5)


async def _true(value: object) -> bool:
    return bool(value)


ISOLATED = """
import os
from pathlib import Path
from outlast import Breaker, Outlast

ol = Outlast(os.environ["ISOLATED_URL"], schema=os.environ["ISOLATED_SCHEMA"])

@ol.task(isolated=True, max_attempts=2, breaker=Breaker(failures=2, probe_first=0.05))
def push(n: int) -> None:
    if Path(os.environ["ISOLATED_DOWN"]).exists():
        raise ConnectionError("refused")
"""


@pytest.mark.kinds("sqlite")
async def test_what_a_process_of_its_own_raises_counts(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R223: an isolated handler's error is told by kind, not only by name."""
    down = tmp_path / "down"
    down.touch()
    (tmp_path / "isolated_outage.py").write_text(ISOLATED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ISOLATED_URL", database.url)
    monkeypatch.setenv("ISOLATED_SCHEMA", database.schema)
    monkeypatch.setenv("ISOLATED_DOWN", str(down))
    module = import_module("isolated_outage")
    try:
        with module.ol as ol:
            await ol.aenqueue(*(module.push.job(n) for n in range(4)))
            async with work(ol, concurrency=2):
                await opened(ol)
                down.unlink()
                await all_succeeded(ol, 4)
    finally:
        del sys.modules["isolated_outage"]
