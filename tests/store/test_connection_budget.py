"""`pool_size` bounds a process: its threads and event loops share one budget of connections."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest

from outlast import Outlast, StoreBusy, StoreSettings
from outlast.ops.report import clock
from outlast.store.postgres.connection_budget import (
    HANDOVER_S,
    BudgetWaiter,
    ConnectionBudget,
    PoolMember,
)
from outlast.store.postgres.store import PostgresStore
from tests.support import Database, Processes, aeventually, eventually

pytestmark = pytest.mark.kinds("postgres")

LOOPS = 16


class Counted:
    """A client, and the server's own count of its connections."""

    def __init__(self, database: Database, size: int, **settings: float) -> None:
        self.name = f"budget {database.schema}"
        url = f"{database.url}{'&' if '?' in database.url else '?'}application_name={self.name}"
        chosen = StoreSettings(pool_size=size, **settings)
        self.ol = Outlast(url.replace(" ", "%20"), schema=database.schema, settings=chosen)
        self.ol.migrate()
        self.ol.store.ready()
        self.ol.close()
        self._watch = psycopg.connect(database.url, autocommit=True)

    @property
    def store(self) -> PostgresStore:
        assert isinstance(self.ol.store, PostgresStore)
        return self.ol.store

    def open(self) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        found = self._watch.execute(query, (self.name,)).fetchone()
        assert found
        return int(found[0])

    def close(self) -> None:
        self.ol.close()
        self._watch.close()


@pytest.fixture
def counted(database: Database) -> Iterator[Counted]:
    client = Counted(database, 4, deadline=20)
    yield client
    client.close()


def test_sixteen_event_loops_and_threads_share_one_budget(counted: Counted) -> None:
    """R230: 16 loops and 8 threads with a pool of 4 → never more than 4 connections, all served."""
    most, done, over = 0, threading.Event(), []

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, counted.open())

    async def many() -> None:
        await asyncio.gather(*(counted.store.arun(clock) for _ in range(6)))

    def in_loop(_: int) -> None:
        asyncio.run(many())
        over.append(1)

    def in_thread(_: int) -> None:
        for _ in range(6):
            counted.store.run(clock)
        over.append(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(LOOPS + 8) as pool:
        list(pool.map(lambda n: in_loop(n) if n < LOOPS else in_thread(n), range(LOOPS + 8)))
    done.set()
    watcher.join()
    assert len(over) == LOOPS + 8
    # A connection that is closed in one loop's favour ends on the server a moment later.
    assert 0 < most <= 4 + 2
    eventually(lambda: counted.open() <= 4)


def test_idle_connections_of_one_loop_make_way_for_another(counted: Counted) -> None:
    """R230: a loop that keeps four idle connections does not keep others from theirs."""
    with asyncio.Runner() as first, asyncio.Runner() as second:

        async def four() -> None:
            await asyncio.gather(*(counted.store.arun(clock) for _ in range(4)))

        first.run(four())
        counted.store.run(clock)
        second.run(four())
        eventually(lambda: counted.open() <= 4)
        first.run(four())
        eventually(lambda: counted.open() <= 4)
        first.run(counted.ol.aclose())
        second.run(counted.ol.aclose())


def test_a_loop_that_is_closed_gives_its_places_back(counted: Counted) -> None:
    """R230: idle connections, connections in use and places granted, of a loop that was just
    closed, are had again by others, also by one that waits already."""
    loop = asyncio.new_event_loop()
    lent: list[object] = []

    async def hold() -> None:
        lent.append(lending := counted.store._pools.loop_pool().acquire())
        await lending.__aenter__()
        await asyncio.Event().wait()

    tasks = [loop.create_task(hold()) for _ in range(4)]
    loop.run_until_complete(asyncio.sleep(0))
    while len(lent) < 4 or counted.store._pools.budget._open < 4 or counted.open() < 4:
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(asyncio.sleep(0.05))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(counted.store.run, clock)
        eventually(lambda: len(counted.store._pools.budget._queue) == 1)
        loop.close()
        assert waiting.result(timeout=5) > 0
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    tasks.clear()
    lent.clear()
    gc.collect()
    assert counted.store._pools.budget._open == 1


def test_a_returned_connection_stays_in_its_pool_for_a_moment() -> None:
    """R230: pools that share a full budget do not open a new connection for each call; and nobody
    waits longer than a moment for that."""
    budget, mine, other = ConnectionBudget(1), PoolMember(), PoolMember()
    for lender in (mine, other):
        budget.join(lender)
    grant = budget.claim(mine)
    assert grant is not None
    link = SimpleNamespace(pgconn=SimpleNamespace(finish=lambda: None))
    line = [BudgetWaiter(lender, lambda: None) for lender in (other, mine, mine)]
    for waiter in line:
        budget.enqueue(waiter)
    budget.release(grant, link)
    assert [waiter.grant is not None for waiter in line] == [False, True, False]
    granted = line[1].grant
    assert granted is not None and granted.link is link and granted.evicted is None
    line[0].since -= 2 * HANDOVER_S
    budget.release(granted, link)
    assert [waiter.grant is not None for waiter in line] == [True, True, False]
    assert line[0].grant is not None and line[0].grant.evicted is link
    budget.release(line[0].grant, None)
    assert line[2].grant is not None


class Collecting(PoolMember):
    """A pool that has the garbage collector run while the budget's lock is held."""

    @property
    def ended(self) -> bool:
        gc.collect()
        return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_garbage_collector_may_end_coroutines_under_the_lock(counted: Counted) -> None:
    """R230: coroutines of a closed loop, one with a connection and one in line, are collected by a
    thread that has the lock: it does not wait for itself, and their places are had again."""
    budget = counted.store._pools.budget
    loop = asyncio.new_event_loop()

    async def hold() -> None:
        async with counted.store._pools.loop_pool().acquire():
            await asyncio.Event().wait()

    gc.disable()
    try:
        for _ in range(5):
            loop.create_task(hold())._log_destroy_pending = False  # type: ignore[attr-defined]
        while len(budget._queue) < 1 or counted.open() < 4:
            loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        del loop
        collecting = Collecting()
        collecting.connections = 1
        budget.join(collecting)
        serving = threading.Thread(target=budget.serve, daemon=True)
        serving.start()
        serving.join(10)
        assert not serving.is_alive(), "it waits for itself"
    finally:
        gc.enable()
    assert counted.store.run(clock) > 0
    assert (budget._open, len(budget._queue)) == (1, 0)


def test_a_waiter_that_is_cancelled_passes_its_turn_on(counted: Counted) -> None:
    """R230: and one that loses its patience is told so."""

    async def play() -> None:
        pool = counted.store._pools.loop_pool()
        held = [pool.acquire() for _ in range(4)]
        for each in held:
            await each.__aenter__()
        first = asyncio.create_task(counted.store.arun(clock))
        second = asyncio.create_task(counted.store.arun(clock))
        await aeventually(lambda: len(counted.store._pools.budget._queue) == 2)
        await held[0].__aexit__(None, None, None)  # granted to the first ...
        first.cancel()  # ... which is cancelled before it can take it
        assert await asyncio.wait_for(second, 5) > 0
        for each in held[1:]:
            await each.__aexit__(None, None, None)
        await counted.ol.aclose()

    asyncio.run(play())
    assert counted.store._pools.budget._open == 0


def test_no_place_in_time_is_told(database: Database) -> None:
    """R230: the limit of the process is named."""
    client = Counted(database, 1, deadline=0.3)
    try:
        with (
            client.store._pool.acquire(),
            ThreadPoolExecutor(1) as pool,
            pytest.raises(StoreBusy, match="all 1 connections of this process are in use"),
        ):
            pool.submit(client.store.run, clock).result()
    finally:
        client.close()


def test_a_blocking_call_in_an_event_loop_does_not_wait_for_itself(database: Database) -> None:
    """R230: a loop that has borrowed all of the budget, or waits for it, may block itself: it gets
    one connection beyond the budget, for that call."""
    client = Counted(database, 1, deadline=10)

    async def play() -> None:
        async with client.store._pools.loop_pool().acquire():
            begun = time.monotonic()
            client.store.run(clock)
            assert time.monotonic() - begun < 5
        await client.ol.aclose()

    try:
        asyncio.run(play())
        eventually(lambda: client.open() == 0)
    finally:
        client.close()


def test_a_forked_child_has_a_budget_of_its_own(database: Database, processes: Processes) -> None:
    """R230: what the parent has borrowed is neither used, nor closed, nor counted in the child."""
    script = f"""
import asyncio, os
from outlast import Outlast, StoreSettings
from outlast.store.postgres.pool import Pools
ol = Outlast({database.url!r}, schema={database.schema!r},
             settings=StoreSettings(pool_size=1, deadline=3))
ol.migrate()
with ol.store._pool.acquire() as link:
    child = os.fork()
    if child == 0:
        try:
            ol.counts()
            asyncio.run(ol.acounts())
        finally:
            import sys; code = 1 if sys.exc_info()[0] else 0
            if code:
                import traceback; traceback.print_exc()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert link.execute("SELECT 1").fetchone() == (1,)
ol.counts()
print("fine")
"""
    assert "fine" in processes.python(script).succeed(20)


def test_threads_of_a_forked_child_find_no_pool_of_the_parent(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R230: while one thread starts over, others see the parent's budget, or all of the new: the
    lock of the parent's may be held for ever."""
    pools = counted.store._pools
    pools.budget._pid = -1  # as in a child
    seen: list[bool] = []
    join = ConnectionBudget.join

    def look_and_join(budget: ConnectionBudget, lender: PoolMember) -> None:
        seen.append(pools.budget.inherited or pools._threads._budget is pools.budget)
        join(budget, lender)

    monkeypatch.setattr(ConnectionBudget, "join", look_and_join)
    assert pools.threads._budget is pools.budget and not pools.budget.inherited
    assert seen == [True]


async def test_a_worker_opens_no_more_connections_than_its_page_says(counted: Counted) -> None:
    """R230: pool_size for its handlers' calls, in threads and in its loop, and four more."""
    ol, most = counted.ol, 0

    @ol.task
    async def in_loop(n: int) -> int:
        return sum((await ol.acounts()).values()) + n

    @ol.task
    def in_thread(n: int) -> int:
        return sum(ol.counts().values()) + n

    await ol.aenqueue(*(task.job(n=n) for n in range(60) for task in (in_loop, in_thread)))
    async with ol.worker(concurrency=40):
        while (await ol.acounts())["succeeded"] < 120:
            most = max(most, await asyncio.to_thread(counted.open))
    assert 4 < most <= 4 + 4 + 2  # as above
    await ol.aclose()
