"""A handler's own writes and its job's completion: both are kept, or neither."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from outlast import ClaimLost, Context, InvalidOption, InvalidResult, Outlast, Retry, Task, TooLate
from outlast.model.claim import Claim
from outlast.worker.finisher import Finisher
from tests.support import Database, Proxy, aeventually

from .scripts import aplay, both_colours, play
from .working import TIMINGS, ended, sql, work

pytestmark = pytest.mark.kinds("sqlite", "postgres", "pgbouncer")

TWICE = Retry(max_attempts=2, base=0.0, jitter=0.0)


class Ledger:
    """A table of the application's own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.table = "effect" if database.is_sqlite else f"{database.schema}.effect"
        with database.connect() as connection:
            if not database.is_sqlite:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database.schema}")
            connection.execute(f"CREATE TABLE {self.table} (what text PRIMARY KEY)")

    def write(self, connection: Any, what: str) -> Any:
        """Awaitable, if the connection's is."""
        mark = "?" if self.database.is_sqlite else "%s"
        return connection.execute(f"INSERT INTO {self.table} VALUES ({mark})", (what,))

    def read(self) -> list[str]:
        rows = self.database.rows(f"SELECT what FROM {self.table} ORDER BY what")
        return [what for (what,) in rows]


@pytest.fixture
def ledger(database: Database) -> Ledger:
    return Ledger(database)


def completes(ol: Outlast, colour: str, inside: Any, after: Any = None, **options: Any) -> Task:
    """A task that completes itself with 42; `inside(ctx, conn)` and `after(ctx)` are scripts."""
    after = after or _nothing

    def handles(ctx: Context) -> Any:
        with ctx.completing(42) as connection:
            play(inside(ctx, connection))
        return play(after(ctx))

    async def ahandles(ctx: Context) -> Any:
        async with ctx.completing(42) as connection:
            await aplay(inside(ctx, connection))
        return await aplay(after(ctx))

    return ol.task(name="completes", **options)(handles if colour == "sync" else ahandles)


def _nothing(ctx: Context) -> Any:
    yield None


@both_colours
async def test_own_writes_and_completion_commit_together(
    ol: Outlast, ledger: Ledger, colour: str
) -> None:
    """R129: seen from outside, there is no moment between them; on a later attempt too, and with
    follow-up jobs, keyed ones too, and all that was said."""

    @ol.task
    async def follow_up(n: int) -> int:
        return n

    def inside(ctx: Context, connection: Any) -> Any:
        ctx.log("last words")
        ctx.enqueue(follow_up.job(1), follow_up.using(key="k").job(2))
        yield ledger.write(connection, ctx.job.id)
        if ctx.attempt == 1:
            raise OSError("taken back")

    def after(ctx: Context) -> Any:
        assert ol.job(ctx.job.id).state == "succeeded"
        assert ledger.read() == [ctx.job.id]
        yield None
        return "ignored"

    task = completes(ol, colour, inside, after, retry=TWICE)
    async with work(ol) as worker:
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 42
        await aeventually(lambda: ol.counts()["succeeded"] == 3)
        await aeventually(lambda: worker.counts["succeeded"] == 3)
    assert ledger.read() == [job.id]
    attempts, events = await ol.ahistory(job.id)
    assert [attempt.outcome for attempt in attempts] == ["failed", "succeeded"]
    assert [event.data["message"] for event in events] == ["last words"] * 2
    assert worker.counts["refused"] == worker.counts["lost"] == 0


@both_colours
async def test_a_lost_claim_takes_the_writes_back(
    ol: Outlast, ledger: Ledger, database: Database, colour: str
) -> None:
    """R030, R033: another owner has the job before the block ends."""
    lost: list[str] = []

    def handles(ctx: Context) -> None:
        try:
            with ctx.completing() as connection:
                play(steal(ctx, connection))
        except ClaimLost as error:
            lost.append(error.facts["job"])

    async def ahandles(ctx: Context) -> None:
        try:
            async with ctx.completing() as connection:
                await aplay(steal(ctx, connection))
        except ClaimLost as error:
            lost.append(error.facts["job"])

    def steal(ctx: Context, connection: Any) -> Any:
        yield ledger.write(connection, "mine")
        change = "SET fence = 7, worker = 'thief'"
        if database.is_sqlite:  # nobody else can write meanwhile
            connection.execute(f"UPDATE {database.schema}_job {change}")
        else:
            sql(database, f"UPDATE {{job}} {change}")

    task = ol.task(name="stolen")(handles if colour == "sync" else ahandles)
    async with work(ol):
        job = await task.aenqueue()
        await aeventually(lambda: lost)
    assert lost == [job.id] and ledger.read() == []


@both_colours
async def test_what_happens_afterwards_does_not_undo_it(
    ol: Outlast, ledger: Ledger, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error after it is told of, and fails nothing; nothing more can be said of the job."""
    caplog.set_level(logging.WARNING, "outlast.worker")
    refused: list[str] = []

    def inside(ctx: Context, connection: Any) -> Any:
        yield ledger.write(connection, "once")
        try:
            yield ctx.step("inside", lambda: 1)
        except InvalidOption as error:
            refused.append(str(error))

    def after(ctx: Context) -> Any:
        for say in (
            lambda: ctx.log("more"),
            lambda: ctx.completing().__enter__() if colour == "sync" else ctx.completing(),
            lambda: ctx.step("more", lambda: 1),
        ):
            try:
                wanted = say()
                yield wanted.__aenter__() if hasattr(wanted, "__aenter__") else wanted
            except TooLate as error:
                refused.append(str(error))
        raise RuntimeError("after the end")

    task = completes(ol, colour, inside, after, retry=TWICE)
    async with work(ol):
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 42
        await aeventually(lambda: "RuntimeError" in caplog.text)
        assert (await ol.ajob(job.id)).attempt == 1
    assert "attempt 1 succeeded, now succeeded: RuntimeError" in caplog.text
    assert [
        "belongs before completing" in refused[0],
        *("succeeded" in r for r in refused[1:]),
    ] == [True] * 4
    assert ledger.read() == ["once"]


@both_colours
async def test_a_handler_that_goes_on_after_it_is_left_alone(
    ol: Outlast, ledger: Ledger, colour: str
) -> None:
    """No renewal finds its claim lost, and no lease runs out, however long it takes."""
    went_on: list[bool] = []

    def inside(ctx: Context, connection: Any) -> Any:
        yield ledger.write(connection, "once")

    def after(ctx: Context) -> Any:
        seconds = 1.5 * TIMINGS["lease"]
        if colour == "sync":
            ctx.cancelled.wait(seconds)
        else:
            yield asyncio.sleep(seconds)
        went_on.append(not ctx.cancelled.is_set())

    task = completes(ol, colour, inside, after)
    async with work(ol, lease=TIMINGS["lease"]) as worker:
        await task.aenqueue()
        await aeventually(lambda: went_on)
        await aeventually(lambda: worker.counts["succeeded"] == 1)
    assert went_on == [True] and worker.counts["lost"] == 0


async def test_a_result_that_is_no_json_is_refused_before_anything_is_written(
    ol: Outlast, ledger: Ledger
) -> None:
    told: list[str] = []

    @ol.task
    def odd(ctx: Context) -> None:
        try:
            ctx.completing(object())
        except InvalidResult as error:
            told.append(str(error))

    async with work(ol):
        await ol.aresult((await odd.aenqueue()).id, timeout=10)
    assert "cannot be stored" in told[0]


@both_colours
async def test_a_transaction_that_is_ended_inside_is_no_completion(
    ol: Outlast, ledger: Ledger, colour: str
) -> None:
    """Whoever commits by hand is told; the job is not finished beside it."""

    def inside(ctx: Context, connection: Any) -> Any:
        yield ledger.write(connection, "early")
        yield connection.execute("COMMIT")

    task = completes(ol, colour, inside, max_attempts=1)
    async with work(ol):
        dead = await ended(ol, await task.aenqueue())
    assert dead.error is not None and dead.state == "dead"
    assert "WrongConnection" in dead.error["type"] or "transaction" in dead.error["message"]


@pytest.mark.kinds("postgres", "pgbouncer")
@both_colours
async def test_a_commit_that_the_database_refuses_is_no_completion(
    ol: Outlast, database: Database, colour: str
) -> None:
    """A constraint that is only checked at the end: the attempt fails, and nothing is kept."""
    ol.migrate()
    table = f"{database.schema}.late"
    database.rows(f"CREATE TABLE {table} (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    def inside(ctx: Context, connection: Any) -> Any:
        for _ in range(2):
            yield connection.execute(f"INSERT INTO {table} VALUES (1)")

    task = completes(ol, colour, inside, max_attempts=1)
    async with work(ol):
        dead = await ended(ol, await task.aenqueue())
    assert dead.error is not None and "duplicate key" in dead.error["message"]
    assert database.rows(f"SELECT n FROM {table}") == []


async def test_an_async_handler_is_told_to_say_async_with(ol: Outlast) -> None:
    @ol.task(max_attempts=1)
    async def wrong(ctx: Context) -> None:
        with ctx.completing():
            pass

    async with work(ol):
        dead = await ended(ol, await wrong.aenqueue())
    assert dead.error is not None and "async with" in dead.error["message"]


async def test_a_raised_error_of_the_database_is_the_drivers_own(
    ol: Outlast, ledger: Ledger, database: Database
) -> None:
    """What the handler does there is between it and its driver; and nothing of it is kept."""
    import psycopg

    caught: list[type] = []

    @ol.task
    def twice(ctx: Context) -> str:
        try:
            with ctx.completing() as connection:
                ledger.write(connection, "a")
                ledger.write(connection, "a")
        except (sqlite3.IntegrityError, psycopg.IntegrityError) as error:
            caught.append(type(error))
        return "by returning"

    async with work(ol):
        job = await twice.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == "by returning"
    assert len(caught) == 1 and ledger.read() == []


@pytest.mark.kinds("postgres")
async def test_many_at_once_keep_no_worker_waiting(ol: Outlast, ledger: Ledger) -> None:
    """Their connections are not those that the worker needs itself."""
    gate = asyncio.Event()
    inside: set[str] = set()

    @ol.task
    async def slow(ctx: Context) -> None:
        async with ctx.completing():
            inside.add(ctx.job.id)
            await gate.wait()

    @ol.task
    async def quick() -> None: ...

    async with work(ol):
        await ol.aenqueue(*[slow.job() for _ in range(ol.store.settings.pool_size)])
        await aeventually(lambda: len(inside) == ol.store.settings.pool_size)
        job = await quick.aenqueue()
        await ol.aresult(job.id, timeout=10)
        gate.set()
        await aeventually(lambda: ol.counts()["succeeded"] == ol.store.settings.pool_size + 1)


async def test_what_was_said_is_found_waiting_and_on_its_way(ol: Outlast) -> None:
    """R138: an event belongs to the completion wherever it is at that moment."""
    returns = Finisher(ol.store, None, Counter(), None, None, None)  # type: ignore[arg-type]

    nothing = Claim(*[None] * len(Claim._fields))  # type: ignore[arg-type]
    claim = nothing._replace(id="a", fence=1, worker="w", offered_by=None)
    for n in range(3):
        returns.add_event(claim, "log", str(n))
    returns._sending = [returns._events.popleft()]
    said = [event["data"] for event in returns.pending_events(claim)]
    assert said == ["0", "1", "2"]


# A COMMIT whose answer is lost


@contextmanager
def distant(proxy: Proxy, database: Database) -> Iterator[Outlast]:
    with Outlast(proxy.url(database.url), schema=database.schema) as ol:
        yield ol


def at_commit(sent: bytes) -> bool:
    """That of the connection which the handler was lent."""
    return b"effect" in sent and b"COMMIT" in sent[-100:]


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("fault", ["swallow_reply_after", "drop_request_when"])
@both_colours
async def test_a_commit_whose_answer_is_lost_is_looked_up(
    database: Database, proxy: Proxy, ledger: Ledger, colour: str, fault: str
) -> None:
    """R170: accepted, it stands and is not done again; not accepted, the attempt fails and the
    next one does it. Either way the effect is there once."""
    trapped: list[Any] = []
    ran: list[int] = []
    told: list[int] = []

    def inside(ctx: Context, connection: Any) -> Any:
        ran.append(ctx.attempt)
        yield ledger.write(connection, ctx.job.id)
        if ctx.attempt == 1:
            trapped.append(getattr(proxy, fault)(at_commit))

    def after(ctx: Context) -> Any:
        told.append(ctx.attempt)
        yield None

    with distant(proxy, database) as ol:
        task = completes(ol, colour, inside, after, retry=TWICE)
        async with work(ol):
            job = await task.aenqueue()
            assert await ol.aresult(job.id, timeout=30) == 42
        trapped[0].wait()
        assert ran == ([1] if fault == "swallow_reply_after" else [1, 2])
        assert told == ran[-1:], "whoever was not accepted is told so, and nobody else"
        assert ledger.read() == [job.id]
        await ol.aclose()


@pytest.mark.kinds("postgres")
@both_colours
async def test_a_broken_idle_connection_is_replaced_unnoticed(
    ol: Outlast, database: Database, ledger: Ledger, colour: str
) -> None:
    """R169: nothing was written yet, so it is safe to begin anew."""

    def inside(ctx: Context, connection: Any) -> Any:
        yield ledger.write(connection, ctx.job.id)

    task = completes(ol, colour, inside, max_attempts=1)
    async with work(ol):
        await ol.aresult((await task.aenqueue()).id, timeout=10)
        database.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'COMMIT'"
            " AND application_name = 'outlast' AND state = 'idle'"
        )
        await ol.aresult((await task.aenqueue()).id, timeout=10)
    assert len(ledger.read()) == 2


@pytest.mark.kinds("sqlite")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_fork_takes_an_open_transaction_back(ol: Outlast, ledger: Ledger) -> None:
    """A child that inherits an open SQLite connection breaks the locks of both: whoever is in the
    middle of a completion begins again."""
    import os

    forked: list[int] = []

    def inside(ctx: Context, connection: Any) -> Any:
        yield ledger.write(connection, ctx.job.id)
        if ctx.attempt == 1:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            forked.append(pid)

    task = completes(ol, "sync", inside, retry=TWICE)
    async with work(ol):
        job = await task.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == 42
    assert len(forked) == 1 and ledger.read() == [job.id]
    assert (await ol.ajob(job.id)).attempt == 2
