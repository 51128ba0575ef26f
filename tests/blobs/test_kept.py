"""What is too large for a row is kept by reference, and comes back equal."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Annotated, Any

import pytest

from outlast import (
    BatchFailed,
    Blob,
    Context,
    InvalidArguments,
    InvalidOption,
    Job,
    JobDead,
    KeyConflict,
    NoBlobStore,
    Outlast,
    Secret,
    StoreSettings,
    chain,
)
from outlast.ops import retention
from tests.support import Database
from tests.worker.working import ended, sql, work

from .keeping import LARGE, Shelf, files

HUNDRED_MB = 100_000_000


@pytest.mark.slow_on("postgres")
async def test_a_hundred_megabytes_make_a_small_row(
    ol: Outlast, folder: Path, database: Database
) -> None:
    """R168: the handler gets them, and the purge leaves no file."""
    payload = "0123456789" * (HUNDRED_MB // 10)

    @ol.task
    def big(data: str) -> bool:
        return data == payload

    job = await big.aenqueue(payload)
    assert isinstance(job.args, Blob) and job.args.size == HUNDRED_MB + len('{"data":""}')
    async with work(ol):
        assert await ol.aresult(job.id, timeout=60) is True
    [(args,)] = sql(database, "SELECT CAST(args AS text) FROM {job} WHERE id = ?", job.id)
    assert len(args) < 200 and len(files(folder)) == 1
    assert await ol.apurge(state="succeeded") == 1
    assert files(folder) == []


def numbers() -> set[int]:
    return set(range(50_000))


async def test_a_large_result_comes_back_as_its_type(ol: Outlast) -> None:
    """R168: as a result in a row does."""
    job = await ol.task(numbers).aenqueue()
    async with work(ol):
        assert await ol.aresult(job, timeout=30) == numbers()
    assert ol.result(job) == numbers()
    assert ol.result(job, raw=True) == ol.result(job.id)
    assert sorted(ol.result(job.id)) == list(range(50_000))
    assert isinstance(ol.jobs()[0].result, Blob)


def test_files_are_their_owner_s_alone(ol: Outlast, folder: Path) -> None:
    """R168, R198: in directories that nobody else can enter; nothing unfinished is left there."""

    @ol.task
    def big(data: str) -> None: ...

    job = big.enqueue(LARGE)
    [path] = [path for path in folder.rglob("*") if path.is_file()]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, path.parent)} == {0o700}
    assert path.name.startswith(f"{job.id}.args-")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == job.args.sha256


async def test_one_job_is_shown_whole_and_many_are_not(ol: Outlast, without: Outlast) -> None:
    """R168: who has no blob store sees how large it is, and asks for a result in vain."""

    @ol.task
    async def big(data: str) -> dict[str, str]:
        return {"all": data}

    job = await big.aenqueue(LARGE)
    async with work(ol):
        await ended(ol, job)
    assert (ol.job(job.id).args, ol.job(job.id).result) == ({"data": LARGE}, {"all": LARGE})
    assert (await ol.ajob(job.id)).result == {"all": LARGE}
    for seen in (ol.jobs()[0], without.job(job.id), without.jobs()[0]):
        assert seen.args == job.args and isinstance(seen.result, Blob)
        assert seen.as_json()["args"] == {
            "outlast:blob": {"bytes": job.args.size, "sha256": job.args.sha256}
        }
    with pytest.raises(NoBlobStore, match="blobs=") as refused:
        without.result(job.id)
    assert refused.value.facts["job"] == job.id


@pytest.mark.kinds("sqlite")
def test_without_a_blob_store_what_is_too_large_is_refused_as_ever(
    without: Outlast, ol: Outlast
) -> None:
    """R006, R168: and says what would help; with one there is a limit too."""

    @without.task(name="big")
    def refused(data: Any) -> None: ...

    with pytest.raises(InvalidArguments, match=r"blobs="):
        refused.enqueue("x" * 1_000_001)
    with pytest.raises(InvalidArguments, match=r"far more than 1,000,000"):
        refused.enqueue(["x" * 1_000_000] * 100)
    limited = Outlast(
        str(ol.store.address.url), blobs=Shelf(), settings=StoreSettings(blob_limit=2_000_000)
    )

    @limited.task(name="big")
    def big(data: Any) -> None: ...

    big.enqueue("x" * 1_900_000)
    big.enqueue(["x" * 950_000] * 2)
    with pytest.raises(InvalidArguments, match=r"more than 2,000,000 \(blob_limit\)"):
        big.enqueue("x" * 2_000_000)
    limited.close()


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("given", ["s3://bucket", "/var/blobs", "file://host/x", "file:///", 7])
def test_what_is_no_blob_store_is_refused(given: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="blobs"):
        Outlast(f"sqlite:///{tmp_path}/o.db", blobs=given)


@pytest.mark.kinds("sqlite")
def test_the_environment_names_a_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTLAST_BLOBS", f"file://{tmp_path}/a%20b")
    with Outlast(f"sqlite:///{tmp_path}/o.db") as ol:

        @ol.task
        def big(data: str) -> None: ...

        big.enqueue("x" * 2_000_000)
        assert len(files(tmp_path / "a b")) == 1


async def test_results_reach_those_who_come_after(ol: Outlast) -> None:
    """R168, R084: one at a time, in sync handlers and in async ones; jobs as a list has them."""

    @ol.task
    def first(n: int) -> str:
        return LARGE * n

    @ol.task
    def second(ctx: Context) -> list[int]:
        return [len(one) for one in ctx.results()]

    @ol.task
    async def third(ctx: Context) -> list[bool]:
        return [isinstance(job.result, Blob) async for job in ctx.prerequisites()]

    @ol.task
    async def fourth(ctx: Context) -> list[int]:
        return [one async for one in ctx.results()]

    one, two = ol.enqueue(chain(first.job(1), second.job()))
    three = third.using(after=one).enqueue()
    four = fourth.using(after=two).enqueue()
    async with work(ol):
        assert await ol.aresult(two.id, timeout=20) == [len(LARGE)]
        assert await ol.aresult(three.id, timeout=20) == [True]
        assert await ol.aresult(four.id, timeout=20) == [[len(LARGE)]]


async def test_a_batch_has_large_items_and_large_results(ol: Outlast) -> None:
    """R168, R105: an item whose arguments are gone dies alone."""

    @ol.task(batch=10, wait=0.2, max_attempts=1)
    def double(items: list[str]) -> list[str]:
        if any(item.startswith("bad") for item in items):
            raise BatchFailed(
                {n: "bad" for n, item in enumerate(items) if item.startswith("bad")},
                results=[item * 2 for item in items],
            )
        return [item * 2 for item in items]

    given = ["small", LARGE, "bad" + LARGE, "gone" + LARGE]
    jobs = ol.enqueue(*(double.job(item) for item in given))
    assert ol.blobs is not None
    ol.blobs.location.delete(jobs[3].args.name(jobs[3].id))
    async with work(ol):
        assert await ol.aresult(jobs[0].id, timeout=20) == "smallsmall"
        assert await ol.aresult(jobs[1].id, timeout=20) == LARGE * 2
        for job, why in ((jobs[2], "bad"), (jobs[3], "is missing")):
            with pytest.raises(JobDead, match=why):
                await ol.aresult(job.id, timeout=20)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_handler_completes_with_a_large_result_and_adds_large_jobs(
    ol: Outlast, kind: str
) -> None:
    """R168, R078: in its own transaction, or when it returns."""

    @ol.task
    async def follow(data: str) -> int:
        return len(data)

    if kind == "sync":

        @ol.task(name="completes")
        def completes(ctx: Context) -> None:
            with ctx.completing(LARGE):
                ctx.enqueue(follow.job(LARGE))
    else:

        @ol.task(name="completes")
        async def completes(ctx: Context) -> None:
            async with ctx.completing(LARGE):
                ctx.enqueue(follow.job(LARGE))

    @ol.task
    async def adds(ctx: Context) -> None:
        ctx.enqueue(follow.job(LARGE + "!"))

    job = await completes.aenqueue()
    await adds.aenqueue()
    async with work(ol):
        assert await ol.aresult(job.id, timeout=20) == LARGE
        for one in await followed(ol):
            assert isinstance(one.args, Blob)
            assert await ol.aresult(one.id, timeout=20) in (len(LARGE), len(LARGE) + 1)


async def followed(ol: Outlast) -> list[Job]:
    from tests.support import aeventually

    async def two() -> list[Job] | None:
        found = await ol.ajobs(task="follow")
        return found if len(found) == 2 else None

    return await aeventually(two, 20)


async def test_secrets_in_it_are_shown_to_nobody(ol: Outlast, shelved: Outlast) -> None:
    """R198, R168: whole or not, and not in what an error quotes either."""

    @ol.task(max_attempts=1)
    async def charge(note: str, card: Annotated[str, Secret]) -> None:
        raise ValueError(f"{card} was refused")

    job = await charge.aenqueue(LARGE, card="4111-1111-1111-1111")
    async with work(ol):
        now = await ended(ol, job)
    assert now.args == {"note": LARGE, "card": "***"}
    assert now.error is not None and now.error["message"] == "*** was refused"


async def test_a_redriven_job_has_its_arguments_still(ol: Outlast) -> None:
    """R052, R168: what is dead keeps its blob until somebody acts."""
    wrong = [True]

    @ol.task(max_attempts=1)
    async def big(data: str) -> int:
        if wrong.pop():
            raise ValueError("not yet")
        return len(data)

    job = await big.aenqueue(LARGE)
    async with work(ol, audit_every=0.1):
        assert (await ended(ol, job)).state == "dead"
        wrong.append(False)
        await ol.aretry(job.id)
        assert await ol.aresult(job.id, timeout=20) == len(LARGE)


def test_a_key_stands_for_one_call_however_it_is_kept(ol: Outlast, without: Outlast) -> None:
    """R024, R168: by reference in one process, in the row in another."""

    @ol.task(name="big")
    def big(data: str) -> None: ...

    @without.task(name="big")
    def same(data: str) -> None: ...

    for one, other in ((big, same), (same, big)):
        job = one.using(key=repr(one)).enqueue(LARGE)
        assert one.using(key=repr(one)).enqueue(LARGE).id == job.id
        assert other.using(key=repr(one)).enqueue(LARGE).id == job.id
        for task in (one, other):
            with pytest.raises(KeyConflict):
                task.using(key=repr(one)).enqueue(LARGE[1:] + "!")
            with pytest.raises(KeyConflict):
                task.using(key=repr(one)).enqueue("small")


async def test_what_is_pruned_or_forgotten_takes_its_blobs_along(
    ol: Outlast, folder: Path, shelved: Outlast, shelf: Shelf
) -> None:
    """R168, R165: at once; where the store is out of reach, the verb succeeds all the same."""

    @ol.task
    async def big(data: str) -> str:
        return data

    one, two = await ol.aenqueue(big.job(LARGE), big.job(LARGE))
    async with work(ol):
        await ended(ol, one)
        await ended(ol, two)
    assert len(files(folder)) == 4
    assert ol.forget(one.id).args is None
    assert {name.partition(".")[0] for name in files(folder)} == {two.id}
    removed = ol.store.run(retention.prune, "succeeded", -1.0, 10)
    assert removed == 2 and len(removed.blobs) == 2

    @shelved.task(name="shelved")
    def other(data: str) -> None: ...

    for reached in (True, False):
        shelved.cancel(other.enqueue(LARGE).id)
        shelf.away = not reached
        assert shelved.purge(state="cancelled") == 1
        assert len(shelf.things) == (not reached), "removed, or left to the sweep"
