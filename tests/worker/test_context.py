"""What a handler can know, say and leave behind; and what counts of it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import (
    BatchContext,
    ClaimLost,
    Context,
    InvalidArguments,
    Outlast,
    Permanent,
    Retry,
)
from tests.support import Database, aeventually

from .working import BOUND, SLACK, ended, sql, started, work

QUICK = Retry(max_attempts=2, base=0.0, jitter=0.0)
tenant_of_caller: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


async def test_what_a_handler_says_is_kept_in_order_and_by_attempt(ol: Outlast) -> None:
    """R138: the events of two attempts stand apart; what was said is stored before the end."""

    @ol.task(retry=QUICK)
    def talks(ctx: Context) -> None:
        for n in range(5):
            ctx.progress(n, 5, f"step {n}")
        ctx.log("a line", attempt=ctx.attempt, when=datetime(2026, 1, 2, tzinfo=UTC))
        if ctx.attempt == 1:
            raise OSError("once")

    async with work(ol):
        job = await talks.aenqueue()
        await ol.aresult(job.id, timeout=10)
    _, events = await ol.ahistory(job.id)
    assert [(event.attempt, event.kind) for event in events] == [
        (attempt, kind) for attempt in (1, 2) for kind in [*["progress"] * 5, "log"]
    ]
    assert [event.data["done"] for event in events[:5]] == [0, 1, 2, 3, 4]
    assert events[5].data == {
        "message": "a line", "attempt": 1, "when": "2026-01-02 00:00:00+00:00",
    }  # fmt: skip
    assert [event.seq for event in events] == sorted(event.seq for event in events)


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")


async def test_nothing_that_a_handler_says_can_make_it_fail(ol: Outlast) -> None:
    """R006, R141: whatever it is, something readable is kept, and its neighbours with it."""
    loop: list[Any] = []
    loop.append(loop)

    @ol.task(max_attempts=1)
    async def odd(ctx: Context) -> str:
        ctx.progress(float("nan"), float("inf"), "NUL \0, half a letter \ud800")
        ctx.log("x" * 1_000_000)
        ctx.log(Unspeakable(), big="y" * 1_000_000, many=list(range(100_000)), loop=loop)
        ctx.log("set", value={1}, raw=b"\xff", unspeakable=Unspeakable(), nan=float("nan"))
        return "fine"

    @ol.task
    async def neighbour(ctx: Context) -> None:
        ctx.progress(1)

    async with work(ol):
        jobs = await ol.aenqueue(odd.job(), neighbour.job())
        assert await ol.aresult(jobs[0].id, timeout=10) == "fine"
        await ol.aresult(jobs[1].id, timeout=10)
    _, events = await ol.ahistory(jobs[0].id)
    assert len(events) == 4
    assert all(len(str(event.data)) < 20_000 for event in events)
    assert events[0].data["note"] == "NUL \\x00, half a letter \\ud800"
    assert "more characters" in events[1].data["message"]
    _, others = await ol.ahistory(jobs[1].id)
    assert len(others) == 1


async def test_jobs_that_a_handler_enqueues_exist_if_and_only_if_it_is_accepted(
    ol: Outlast, database: Database
) -> None:
    """R064: with a success; not with a failure, a permanent one, or a lost claim."""

    @ol.task
    async def follow(name: str) -> str:
        return name

    @ol.task(retry=QUICK)
    async def leads(how: str, ctx: Context) -> str:
        ctx.enqueue(follow.job(how), follow.using(delay=3600).job(f"{how} later"))
        if how == "fails" and ctx.attempt == 1:
            raise OSError("once")
        if how == "permanent":
            raise Permanent("never")
        if how == "zombie" and ctx.fence == 1:
            sql(database, "UPDATE {job} SET fence = fence + 1 WHERE id = ?", ctx.job.id)
        if how == "bad":
            with pytest.raises(InvalidArguments):
                ctx.enqueue(follow.job(7))  # type: ignore[arg-type]
        return how

    async with work(ol) as worker:
        jobs = await ol.aenqueue(*(leads.job(how) for how in ("fine", "fails", "permanent", "bad")))
        for job in jobs:
            await ended(ol, job)
        zombie = await leads.aenqueue("zombie")
        await aeventually(lambda: worker.counts["refused"] == 1)
        assert await ol.aresult(zombie.id, timeout=BOUND + SLACK) == "zombie", "the second time"
        await aeventually(lambda: ol.counts()["ready"] == 0)
    followers = [job.args["name"] for job in await ol.ajobs(task="follow")]
    wanted = [name for how in ("bad", "fails", "fine", "zombie") for name in (how, f"{how} later")]
    assert sorted(followers) == wanted


async def test_the_fence_grows_with_every_claim(ol: Outlast) -> None:
    """R129: an outside system can refuse whoever comes with an old one."""
    fences: list[int] = []

    @ol.task(retry=Retry(max_attempts=4, base=0.0, jitter=0.0))
    async def fails(ctx: Context) -> None:
        fences.append(ctx.fence)
        raise OSError("again")

    async with work(ol):
        job = await fails.aenqueue()
        await ended(ol, job)
        await ol.aretry(job.id)
        await aeventually(lambda: len(fences) == 8)
        await ended(ol, job)
    assert fences == list(range(1, 9))


async def test_a_sync_handler_sees_the_context_variables_of_its_worker(ol: Outlast) -> None:
    """And what it sets there is its own."""

    @ol.task
    def look(n: int) -> str:
        seen = tenant_of_caller.get()
        tenant_of_caller.set(f"changed by {n}")
        return seen

    tenant_of_caller.set("acme")
    async with work(ol):
        jobs = await ol.aenqueue(*(look.job(n) for n in range(5)))
        assert {await ol.aresult(job.id, timeout=10) for job in jobs} == {"acme"}


async def test_a_handler_that_has_lost_its_claim_is_refused_whatever_it_says(
    ol: Outlast, database: Database
) -> None:
    """R030, R138: told at the next renewal; its result counts for nothing."""
    said: list[str] = []

    @ol.task
    async def stolen(ctx: Context) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            for say in (lambda: ctx.progress(1), lambda: ctx.log("x")):
                try:
                    say()
                except ClaimLost as error:
                    said.append(error.facts["job"])
        return "mine"

    async with work(ol) as worker:
        job = await stolen.aenqueue()
        await started(ol, job)
        sql(database, "UPDATE {job} SET fence = 7, worker = 'thief' WHERE id = ?", job.id)
        await aeventually(lambda: said)
        assert said == [job.id, job.id]
        await aeventually(lambda: len(worker.in_flight) == 0)
        now = await ol.ajob(job.id)
        assert (now.state, now.fence, now.worker, now.result) == ("running", 7, "thief", None)
        assert worker.counts["lost"] == 1


async def test_log_records_carry_the_job_and_never_its_arguments(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R197, R198: job, attempt, fence and tenant on each; the payload on none."""
    caplog.set_level(logging.INFO, logger="outlast")

    @ol.task(retry=QUICK)
    async def fails(token: str) -> None:
        raise ValueError(f"bad token {token}")

    @ol.task(timeout=0.1, max_attempts=1)
    async def hangs(token: str) -> None:
        await asyncio.sleep(30)

    @ol.task
    async def typed(token: int) -> None: ...

    @ol.task(max_attempts=1)
    async def returns(token: str) -> Any:
        return {token: object()}

    async with work(ol):
        tasks = (fails, hangs, returns)
        jobs = [await task.using(tenant="acme").aenqueue("s3cret") for task in tasks]
        await ol.apause("default")
        bad = await typed.using(tenant="acme").aenqueue(7)
        spoilt = '{"token": "s3cret"}'
        mark = "?" if database.is_sqlite else "CAST(? AS json)"
        sql(database, f"UPDATE {{job}} SET args = {mark} WHERE id = ?", spoilt, bad.id)
        await ol.aresume("default")
        for job in (*jobs, bad):
            assert (await ended(ol, job)).state == "dead"
    ours = [record for record in caplog.records if record.name.startswith("outlast")]
    for job in (*jobs, bad):
        mine = [record for record in ours if getattr(record, "job", None) == job.id]
        assert mine
        assert {(record.attempt, record.fence) for record in mine} <= {(1, 1), (2, 2)}  # type: ignore[attr-defined]
        assert {record.tenant for record in mine} == {"acme"}  # type: ignore[attr-defined]
    formatter = logging.Formatter("%(message)s")
    assert not [record for record in ours if "s3cret" in formatter.format(record)]


async def refuses_late_calls(ol: Outlast) -> None:
    """Run handlers that leave their contexts behind, and use these afterwards."""
    kept: list[Context] = []

    @ol.task
    def leaves(ctx: Context) -> None:
        kept.append(ctx)

    @ol.task(max_attempts=1)
    async def fails(ctx: Context) -> None:
        kept.append(ctx)
        raise ValueError

    @ol.task(batch=2)
    def gathers(items: list[int], ctx: BatchContext) -> None:
        kept.extend(ctx.items)

    async with work(ol):
        for job in await ol.aenqueue(leaves.job(), fails.job(), gathers.job(1)):
            await ended(ol, job)
    assert len(kept) == 3
    for ctx in kept:
        for late, given in (
            (ctx.enqueue, leaves.job()),
            (ctx.progress, 1),
            (ctx.log, "late"),
            (ctx.stream, "late"),
        ):
            with pytest.raises(ClaimLost):
                late(given)
    assert sum((await ol.acounts()).values()) == 3


async def test_a_context_that_outlives_its_handler_refuses_what_would_be_lost(ol: Outlast) -> None:
    """R007: a thread that the handler left behind is told so, instead of enqueueing nothing."""
    await refuses_late_calls(ol)
