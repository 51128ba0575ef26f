"""One job's trouble is not another's: keys that wait, and forks."""

from __future__ import annotations

import asyncio
import os

import psycopg
import pytest

from outlast import Context, Outlast
from tests.support import Database, Postgres, aeventually

QUICK = {"lease": 2.0, "renew_every": 0.5, "reclaim_every": 0.2, "poll_max": 0.2}


@pytest.mark.kinds("postgres")
async def test_a_key_held_by_an_open_transaction_holds_up_nobody_else(database: Database) -> None:
    """R018, R029: a follow-up waits for its key; other jobs start, run on and finish."""
    ol = Outlast(database.url, schema=database.schema)
    ran: list[int] = []

    @ol.task
    async def child(n: int) -> int:
        return n

    @ol.task
    async def parent(ctx: Context) -> str:
        ctx.enqueue(child.using(key="k").job(n=1))
        return "parent"

    @ol.task
    async def long() -> str:
        ran.append(1)
        await asyncio.sleep(3.0)
        return "long"

    async with ol, await psycopg.AsyncConnection.connect(database.url) as caller:
        await child.using(key="k", conn=caller).aenqueue(n=1)  # not committed yet
        async with ol.worker(**QUICK) as worker:
            slow = await long.aenqueue()
            held = await parent.aenqueue()
            await aeventually(lambda: len(worker.sink._keyed) == 1)
            quick = await child.aenqueue(n=2)
            assert await ol.aresult(quick.id, timeout=5) == 2
            assert await ol.aresult(slow.id, timeout=10) == "long"
            assert (await ol.ajob(held.id)).state == "running"
            await caller.commit()
            assert await ol.aresult(held.id, timeout=10) == "parent"
            assert worker.counts["lost"] == 0 and len(ran) == 1
        assert len([job for job in await ol.ajobs(task="child") if job.key == "k"]) == 1


@pytest.mark.kinds("postgres")
def test_a_forked_child_does_not_end_its_parents_sessions(
    database: Database, postgres_server: Postgres
) -> None:
    """R193: neither the blocking nor the asyncio ones, by closing its copy of the client."""
    with Outlast(database.url, schema=database.schema) as ol, asyncio.Runner() as runner:
        ol.migrate()
        ol.counts()
        runner.run(ol.acounts())
        before = sessions(postgres_server)
        if (child := os.fork()) == 0:
            ol.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        ol.counts()
        runner.run(ol.acounts())
        assert sessions(postgres_server) == before
        runner.run(ol.aclose())


def sessions(server: Postgres) -> set[int]:
    rows = server.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'outlast'")
    return {pid for (pid,) in rows}
