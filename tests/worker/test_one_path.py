"""A job has one row, however many ways there are to hear of it."""

from __future__ import annotations

from collections import Counter

import pytest

from outlast import Context, Outlast
from tests.support import Database, aeventually

from .working import sql, work


@pytest.mark.kinds("sqlite", "postgres")
async def test_a_job_that_is_announced_and_polled_for_runs_once(
    ol: Outlast, database: Database
) -> None:
    """R130: one worker relies on wake-ups and hardly polls, the other polls all the time, and each
    wake-up is sent three times; in a transaction of ours and in a caller's. Each job runs once,
    and either worker has run some."""
    runs: Counter[str] = Counter()
    by: Counter[str] = Counter()

    @ol.task
    async def note(n: int, ctx: Context) -> None:
        runs[ctx.job.id] += 1
        by[ctx.job.worker or ""] += 1

    woken = work(ol, concurrency=2, poll_max=60.0)
    polling = work(ol, concurrency=2, poll_min=0.001, poll_max=0.01)
    ids: list[str] = []
    async with woken, polling:
        n = 0
        while n < 30 or len(by) < 2:  # until both ways have been in use
            if n % 3:
                ids += [job.id for job in await ol.aenqueue(note.job(n))]
            else:
                with database.connect() as connection:
                    ids += [job.id for job in ol.enqueue(note.job(n), conn=connection)]
            for _ in range(3):
                await ol._async.notify(["default"])
            n += 1
        await aeventually(lambda: sum(runs.values()) >= n, 30.0)
    assert runs == Counter(dict.fromkeys(ids, 1))
    assert set(sql(database, "SELECT attempt, fence, state FROM {job}")) == {(1, 1, "succeeded")}
