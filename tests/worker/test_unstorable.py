"""Outcomes that cannot be stored: each ends alone, says why, and holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from outlast import Context, Outlast, StoreError
from outlast.cli.doctor import host_facts
from outlast.model.errors import StoreBusy
from outlast.ops.doctor.checks import examine
from outlast.worker import finisher
from tests.support import Database, aeventually, eventually

from .working import Spy, ended, sql, work

SNOW = "snow ☃"
NEIGHBOURS = 6


class Refusing:
    """A store whose connections fail at one value, as a driver does that cannot send it."""

    def __init__(self, ol: Outlast, marker: str, error: Callable[[], Exception]) -> None:
        kind: Any = type(ol.store)
        refusing = self
        self.times = 0

        class Refused(kind):  # type: ignore[misc]
            def render(self, statement: Any) -> Any:
                refusing.check(statement)
                return super().render(statement)

            def clone(self, *said: Any, **settings: Any) -> Any:
                twin = super().clone(*said, **settings)
                twin.__class__ = Refused
                return twin

        self._marker, self._error = marker, error
        ol.store.__class__ = Refused

    def check(self, statement: Any) -> None:
        if self._marker in str(statement.bind):
            self.times += 1
            raise self._error()


async def all_end(ol: Outlast, bad: Any, database: Database) -> Any:
    """One bad outcome among good ones, handed in together; how the bad one ended."""
    gate = asyncio.Event()

    @ol.task
    async def odd(ctx: Context) -> Any:
        await gate.wait()
        return bad() if callable(bad) else bad

    @ol.task
    async def fine(n: int, ctx: Context) -> int:
        await gate.wait()
        ctx.progress(n)
        return n

    jobs = await ol.aenqueue(odd.job(), *(fine.job(n) for n in range(NEIGHBOURS)))
    async with work(ol, concurrency=20) as worker:
        await aeventually(lambda: ol.counts()["running"] == NEIGHBOURS + 1)
        gate.set()
        for n, job in enumerate(jobs[1:]):
            assert await ol.aresult(job.id, timeout=15) == n
        first = await ended(ol, jobs[0], timeout=15)
        assert worker.counts["unstorable"] == 1
        assert not worker.in_flight, "nothing is held on to"
    return first


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize(
    "error",
    [
        lambda: UnicodeEncodeError("latin-1", SNOW, 5, 6, "ordinal not in range(256)"),
        lambda: ValueError("a driver's whim ☃ \ud800"),
        lambda: OverflowError("a number is too large"),
        lambda: RecursionError("too deep"),
        lambda: psycopg.DataError("no such text"),
        lambda: psycopg.ProgrammingError("nobody foresaw this"),
        lambda: KeyError("a bug"),
    ],
    ids=["encoding", "value", "overflow", "recursion", "data", "programming", "bug"],
)
async def test_whatever_a_driver_raises_about_one_outcome_ends_that_one(
    ol: Outlast, database: Database, error: Callable[[], Exception]
) -> None:
    """R217: also where the error is none that we know."""
    refusing = Refusing(ol, "poison", error)
    first = await all_end(ol, "poison", database)
    assert first.state == "dead" and first.error and refusing.times >= 2
    assert str(error()).split()[0].strip("'") in first.error["message"]


@pytest.mark.kinds("sqlite")
async def test_sqlite_refuses_one_outcome_and_takes_the_others(
    ol: Outlast, database: Database
) -> None:
    """R217: by a trigger, which stands for whatever a database has against one row."""
    ol.migrate()
    with database.connect() as connection:
        connection.execute(
            f"CREATE TRIGGER no_snow BEFORE UPDATE OF result ON {database.schema}_job"
            " WHEN NEW.result LIKE '%☃%' BEGIN SELECT RAISE(ABORT, 'no snow'); END"
        )
    first = await all_end(ol, SNOW, database)
    assert first.state == "dead" and first.error and "no snow" in first.error["message"]


async def test_a_batch_that_fails_twice_is_taken_apart(ol: Outlast, database: Database) -> None:
    """R217: for a reason that says nothing about rows; the second time, each is tried alone."""
    spy = Spy(ol)
    refusal = StoreError("the database has something against it")
    spy.refuse("finish", refusal, times=2)
    gate = asyncio.Event()

    @ol.task
    async def fine(n: int, ctx: Context) -> int:
        await gate.wait()
        ctx.enqueue(other.job())
        return n

    @ol.task
    async def other() -> None: ...

    jobs = await ol.aenqueue(*(fine.job(n) for n in range(5)))
    async with work(ol, concurrency=10):
        await aeventually(lambda: ol.counts()["running"] == 5)
        gate.set()
        for n, job in enumerate(jobs):
            assert await ol.aresult(job.id, timeout=15) == n


async def test_an_outcome_in_somebodys_way_is_set_aside(ol: Outlast) -> None:
    """R217, R018: a row that another transaction locks for long holds up its own outcome only."""
    spy = Spy(ol)
    gate = asyncio.Event()

    @ol.task
    async def fine(n: int, ctx: Context) -> int:
        await gate.wait()
        ctx.enqueue(other.job())  # so it is no plain success
        return n

    @ol.task
    async def other() -> None: ...

    jobs = await ol.aenqueue(*(fine.job(n) for n in range(3)))
    spy.refuse("finish", StoreBusy(reason="a row is locked"), times=3)
    async with work(ol, concurrency=5) as worker:
        await aeventually(lambda: ol.counts()["running"] == 3)
        gate.set()
        done = [await ol.aresult(job.id, timeout=15) for job in jobs]
        await aeventually(lambda: not worker.in_flight)
    assert done == [0, 1, 2] and not spy.refusing("finish")


async def test_a_worker_that_cannot_hand_in_says_so(
    ol: Outlast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R217, R084: the doctor tells, a gauge counts, and when it goes well again nobody complains;
    the job was not lost, and ran once."""
    monkeypatch.setattr(finisher, "REPORT_AFTER_S", 0.1)
    spy = Spy(ol)
    ran: list[int] = []

    @ol.task
    async def fine(ctx: Context) -> int:
        ran.append(1)
        ctx.enqueue(other.job())
        return 7

    @ol.task
    async def other() -> None: ...

    spy.refuse("finish", StoreError("permission denied for table job"), times=1000)
    job = await fine.aenqueue()
    async with work(ol, audit_every=3600) as worker:
        await aeventually(lambda: worker.sink.set_aside_count == 1, timeout=20)

        def told() -> list[str]:
            found = ol.store.run(examine, host_facts(ol.store))
            return [one.sentence for one in found if one.name == "cannot-hand-in"]

        eventually_told = await asyncio.to_thread(eventually, told, 15)
        assert "permission denied" in eventually_told[0] and str(worker.id) in eventually_told[0]
        spy._refused["finish"][0].clear()
        assert await ol.aresult(job.id, timeout=40) == 7
        await asyncio.to_thread(eventually, lambda: not told(), 15)
        assert worker.sink.set_aside_count == 0
    assert ran == [1]
    assert sql(database, "SELECT count(*) FROM {attempt}") == [(0,)]


async def test_what_is_no_longer_in_hand_is_not_told_of(ol: Outlast) -> None:
    """R217, R084: an outcome that was set aside, and whose claim is gone: no complaint stays."""
    spy = Spy(ol)

    @ol.task
    async def fine(ctx: Context) -> None:
        ctx.enqueue(fine.using(queue="nobody").job())

    spy.refuse("finish", StoreError("permission denied for table job"), times=1000)
    await fine.using(queue="ours").aenqueue()
    async with work(ol, queues=["ours"]) as worker:
        await aeventually(lambda: worker.sink.set_aside_count == 1, timeout=20)
        for held in worker.in_flight.ended():
            worker.in_flight.discard(held)
        await aeventually(lambda: worker.sink.set_aside_count == 0, timeout=20)
