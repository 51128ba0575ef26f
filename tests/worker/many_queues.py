"""Databases with very many queues, and how fast a worker drains them."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress

from outlast import Outlast, State, Worker
from tests.support import Database, aeventually

COLUMNS = (
    "id, tenant, queue, task, args, priority, max_attempts, max_crashes, state, run_at, created_at"
)


def fill(
    database: Database, queues: int, each: int, *, task: str = "note", prefix: str = "q",
    tenant: str = "default",
) -> None:  # fmt: skip
    """Ready jobs in so many queues, made in the database itself, one queue after the other."""
    number = queues * each
    if database.is_sqlite:
        more = f"SELECT n + 1 FROM s WHERE n + 1 < {number}"
        serial = f"WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL {more})"
        id = f"printf('{_head(prefix)}-0000-7000-8000-%012x', n)"
        queue, now, source = f"'{prefix}' || (n % {queues})", "strftime('%s') - 1.0", "s"
        table = f"{database.schema}_job"
    else:
        serial = ""
        id = f"CAST('{_head(prefix)}-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid)"
        queue, now = f"'{prefix}' || (n % {queues})", "now() - interval '1 s'"
        source, table = f"generate_series(0, {number - 1}) AS n", f'"{database.schema}".job'
    with database.connect() as connection:
        connection.execute(
            f"INSERT INTO {table} ({COLUMNS}) {serial} SELECT {id}, '{tenant}', {queue},"
            f" '{task}', '{{}}', 0, 3, 3, 'ready', {now}, {now} FROM {source}"
        )
        connection.execute(f"ANALYZE {table}")


def empty(database: Database) -> None:
    """Without jobs, and without what deleted ones leave behind."""
    with database.connect() as connection:
        if database.is_sqlite:
            connection.execute(f"DELETE FROM {database.schema}_job")
        else:
            connection.execute(f'TRUNCATE "{database.schema}".job')


def _head(prefix: str) -> str:
    return prefix.encode().hex().ljust(8, "0")[:8]


async def drained(ol: Outlast, wanted: int, seconds: float, **said: object) -> tuple[int, float]:
    """How many jobs one worker ran in how many seconds, until so many are through or time is up."""
    ran: Counter[str] = Counter()

    @ol.task(name="note")
    async def note() -> None:
        ran["jobs"] += 1

    worker: Worker = ol.worker(**said)  # type: ignore[arg-type]
    began = time.monotonic()
    async with worker:
        with suppress(AssertionError):  # time is up
            await aeventually(lambda: worker.counts[State.SUCCEEDED] >= wanted, seconds)
        done, took = worker.counts[State.SUCCEEDED], time.monotonic() - began
        worker.stop()
    return done, took


async def rate(ol: Outlast, database: Database, queues: int, each: int) -> float:
    """Jobs per second of one worker, at most 30,000 of them, with nothing else there."""
    empty(database)
    fill(database, queues, each)
    wanted = min(queues * each, 30_000)
    done, took = await drained(ol, wanted, 120)
    assert done >= wanted, f"{done:,} of {wanted:,} jobs in {took:.0f} s"
    return done / took
