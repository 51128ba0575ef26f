"""Blobs that cannot be had: for a while, here, or ever again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlast import BlobLost, BlobUnavailable, Context, JobDead, Outlast, chain
from outlast.worker import blob_io
from tests.support import Database, aeventually
from tests.worker.working import ended, sql, work

from .keeping import LARGE, Shelf, files


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be had now is tried again at once."""
    monkeypatch.setattr(blob_io, "MAX_RETRY_DELAY_S", 0.2)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("how", ["gone", "spoilt"])
async def test_a_blob_that_is_gone_or_spoilt_kills_its_own_job_alone(
    shelved: Outlast, shelf: Shelf, how: str, kind: str
) -> None:
    """R168, R013: at once and with the reason, as a row does that cannot be decoded."""
    if kind == "sync":

        @shelved.task(name="big")
        def big(data: str) -> int:
            return len(data)
    else:

        @shelved.task(name="big")
        async def big(data: str) -> int:
            return len(data)

    bad, good = await shelved.aenqueue(big.job(LARGE), big.job(LARGE))
    if how == "gone":
        shelf.delete(bad.args.name(bad.id))
    else:
        shelf.spoil(bad.id, b'{"data":"other"}')
    async with work(shelved):
        now = await ended(shelved, bad)
        assert await shelved.aresult(good.id, timeout=20) == len(LARGE)
    assert (now.state, now.attempt, now.failures) == ("dead", 1, 1)
    assert now.error is not None and now.error["type"].endswith("BlobLost")
    assert ("is missing" if how == "gone" else "was changed or damaged") in now.error["message"]
    assert now.args == bad.args, "looking at it does not fail"


async def test_a_store_that_is_out_of_reach_costs_a_job_nothing(
    shelved: Outlast, shelf: Shelf, soon: None
) -> None:
    """R168, R054: it waits, spends no failure however often it is tried, and then succeeds."""

    @shelved.task(max_attempts=1)
    async def big(data: str) -> int:
        return len(data)

    job = await big.aenqueue(LARGE)
    shelf.away = True
    async with work(shelved):
        waiting = await aeventually(lambda: tried(shelved, job.id))
        assert "out of reach" in str(waiting)
        shelf.away = False
        assert await shelved.aresult(job.id, timeout=20) == len(LARGE)
    assert (shelved.job(job.id).failures, shelved.job(job.id).crashes) == (0, 0)


def tried(ol: Outlast, id: str) -> object:
    """How it went, once it was tried three times."""
    attempts, _ = ol.history(id)
    return attempts[-1].error if len(attempts) >= 3 else None


@pytest.mark.parametrize("kind", ["async", "sync", "batch"])
async def test_a_result_waits_for_the_store_and_the_work_is_not_done_again(
    shelved: Outlast, shelf: Shelf, kind: str
) -> None:
    """R168: the claim is held meanwhile."""
    calls: list[int] = []

    def work_done(ctx_attempt: int) -> str:
        calls.append(ctx_attempt)
        shelf.away = True
        return LARGE

    if kind == "async":

        @shelved.task(name="gives")
        async def gives(ctx: Context) -> str:
            return work_done(ctx.attempt)
    elif kind == "sync":

        @shelved.task(name="gives")
        def gives(ctx: Context) -> str:
            return work_done(ctx.attempt)
    else:

        @shelved.task(name="gives", batch=2)
        def gives(items: list[int]) -> list[str]:  # type: ignore[misc]
            return [work_done(1) for _ in items]

    job = await (gives.aenqueue(1) if kind == "batch" else gives.aenqueue())
    async with work(shelved):
        await aeventually(shelf.asked.is_set)
        shelf.away = False
        assert await shelved.aresult(job.id, timeout=20) == LARGE
    assert calls == [1]


async def test_a_result_that_cannot_be_kept_for_long_is_made_again_later(
    shelved: Outlast, shelf: Shelf, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R168: without spending a failure."""
    monkeypatch.setattr(blob_io, "STORE_WAIT_S", 0.0)
    calls: list[int] = []

    @shelved.task(max_attempts=1)
    def gives(ctx: Context) -> str:
        calls.append(ctx.attempt)
        shelf.away = len(calls) < 3
        return LARGE

    job = await gives.aenqueue()
    async with work(shelved):
        assert await shelved.aresult(job.id, timeout=20) == LARGE
    assert calls == [1, 2, 3] and shelved.job(job.id).failures == 0


async def test_a_worker_without_the_store_leaves_the_job_for_others(
    shelved: Outlast, without: Outlast, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    """R168, R010: unspent, with a line in the log, and its small neighbours are carried out."""

    @shelved.task(name="big")
    async def big(data: str) -> int:
        return len(data)

    @without.task(name="big")
    async def same(data: str) -> int:
        return -len(data)

    large, small = await shelved.aenqueue(big.job(LARGE), big.job("small"))
    async with work(without):
        assert await without.aresult(small.id, timeout=20) == -5
        await aeventually(lambda: len(without.history(large.id)[0]) >= 2)
    now = without.job(large.id)
    assert now.state in ("scheduled", "ready") and (now.attempt, now.failures) == (0, 0)
    assert now.error is not None and "blobs=" in now.error["message"]
    assert any("left for other workers" in record.getMessage() for record in caplog.records)
    async with work(shelved):
        assert await shelved.aresult(large.id, timeout=20) == len(LARGE)


async def test_a_job_is_not_enqueued_whose_arguments_cannot_be_kept(
    shelved: Outlast, shelf: Shelf
) -> None:
    """R168: the caller is told."""

    @shelved.task
    async def big(data: str) -> None: ...

    shelf.away = True
    with pytest.raises(BlobUnavailable, match="out of reach"):
        big.enqueue(LARGE)
    with pytest.raises(BlobUnavailable, match="out of reach"):
        await big.aenqueue(LARGE)
    assert shelved.jobs() == []


async def test_who_asks_for_a_result_that_is_gone_is_told(shelved: Outlast, shelf: Shelf) -> None:
    """R168: a caller, and a handler that comes after."""

    @shelved.task
    async def gives() -> str:
        return LARGE

    @shelved.task(max_attempts=1)
    async def follows(ctx: Context) -> None:
        shelf.things.clear()
        assert [one async for one in ctx.results()] == []

    one, two = shelved.enqueue(chain(gives.job(), follows.job()))
    async with work(shelved):
        with pytest.raises(JobDead, match="BlobLost"):
            await shelved.aresult(two.id, timeout=20)
    with pytest.raises(BlobLost, match="is missing"):
        shelved.result(one.id)
    shelf.away = True
    with pytest.raises(BlobUnavailable):
        await shelved.aresult(one.id)


@pytest.mark.kinds("sqlite")
async def test_a_directory_that_is_not_there_is_an_outage(
    ol: Outlast, folder: Path, soon: None
) -> None:
    """R168: one that is not mounted looks so; what it holds is not lost."""

    @ol.task(max_attempts=1)
    async def big(data: str) -> int:
        return len(data)

    job = await big.aenqueue(LARGE)
    place = folder / job.args.namespace
    hidden = place.rename(folder / "elsewhere")
    async with work(ol):
        await aeventually(lambda: tried(ol, job.id))
        hidden.rename(place)
        assert await ol.aresult(job.id, timeout=20) == len(LARGE)


async def test_a_zombie_s_result_does_not_replace_its_heir_s(
    ol: Outlast, database: Database, folder: Path
) -> None:
    """R168, R031: each is kept under its own fence, and the row refers to one."""
    zombies: list[str] = []

    @ol.task
    def gives(ctx: Context) -> str:
        if ctx.attempt == 1:
            # Somebody else's: a claim in its own name that it does not know it would give back.
            taken = "UPDATE {job} SET fence = fence + 1, worker = 'other' WHERE id = ?"
            sql(database, taken, ctx.job.id)
            zombies.append(ctx.job.id)
            return "zombie " + LARGE
        return "heir " + LARGE

    job = await gives.aenqueue()
    async with work(ol) as worker:
        await aeventually(lambda: worker.counts["refused"] or worker.counts["lost"])
        sql(database, "UPDATE {job} SET lease_until = {past} WHERE id = ?".replace(
            "{past}", "1.0" if database.is_sqlite else "to_timestamp(1)"), job.id)  # fmt: skip
        assert await ol.aresult(job.id, timeout=20) == "heir " + LARGE
    assert zombies == [job.id]
    kept = {name.split("-")[-2] for name in files(folder)}
    assert kept >= {"3"} and all(os.fspath(job.id) in name for name in files(folder))
