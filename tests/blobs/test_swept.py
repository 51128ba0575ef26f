"""Blobs that nobody refers to are swept; those that somebody refers to never are."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outlast import Context, Outlast, RetentionSettings, StoreBusy, StoreSettings
from outlast.model.blob import args_blob, result_blob
from outlast.ops.blobs import unreferenced
from outlast.ops.claim import ClaimRequest, claim
from outlast.store.blobs.files import ABANDONED_AFTER_S, UNFINISHED_PREFIX, FileBlobs
from outlast.worker.blob_sweeper import BlobSweeper
from tests.support import Database, Processes, aeventually
from tests.worker.working import sql, work

from .keeping import LARGE, Shelf, files

KILLED = """
import os, signal, stat, sys
from outlast import Outlast
from outlast.store.blobs.files import FileBlobs
from tests.blobs.keeping import BRIEF, LARGE

url, schema, folder, when = sys.argv[1:]
put = FileBlobs.put

def kept(self, name, data):
    put(self, name, data)
    if when == "after the blob":
        os.kill(os.getpid(), signal.SIGKILL)

def synced(handle):
    if stat.S_ISREG(os.fstat(handle).st_mode):  # the blob's own file, and no directory
        os.kill(os.getpid(), signal.SIGKILL)

FileBlobs.put = kept
if when == "in the blob":
    os.fsync = synced
ol = Outlast(url, schema=schema, settings=BRIEF, blobs=f"file://{folder}")
ol.migrate()

@ol.task
def big(data: str) -> None: ...

big.enqueue(LARGE)
"""


@pytest.fixture
def swept(ol: Outlast) -> Iterator[Callable[[], int]]:
    """One pass of the duty; the number of blobs that it removed."""
    ol.retention = RetentionSettings(blob_grace=0.0)
    assert ol.blobs is not None
    blobs, state = ol.blobs, ol.worker().shared.state
    with asyncio.Runner() as loop:

        def once() -> int:
            sweeper = BlobSweeper(ol.store, blobs, ol.retention.blob_grace, state)
            tally = loop.run(sweeper.once())
            assert tally.found == tally.healed + tally.failed
            return tally.healed

        yield once
        loop.run(ol.aclose())


@pytest.mark.parametrize("when", ["in the blob", "after the blob"])
def test_an_enqueuer_that_is_killed_before_its_row_leaves_nothing_for_long(
    ol: Outlast, database: Database, folder: Path, processes: Processes, when: str,
    swept: Callable[[], int],
) -> None:  # fmt: skip
    """R168, R001: no job, and a blob or a part of one, which is swept."""
    killed = processes.python(KILLED, database.url, database.schema, str(folder), when)
    assert killed.wait(30.0) == -signal.SIGKILL
    assert ol.jobs() == [] and len(files(folder)) == 1
    if when == "in the blob":
        [unfinished] = list(folder.rglob(f"{UNFINISHED_PREFIX}*"))
        assert swept() == 0 and unfinished.exists(), "somebody might be writing it"
        long_ago = time.time() - ABANDONED_AFTER_S - 60
        os.utime(unfinished, (long_ago, long_ago))
    assert swept() == (when == "after the blob")
    assert files(folder) == []


def test_a_blob_goes_with_the_caller_s_transaction(
    ol: Outlast, database: Database, folder: Path, swept: Callable[[], int]
) -> None:
    """R168, R002: what was rolled back is swept, what was committed stays."""

    @ol.task
    def big(data: str) -> None: ...

    ol.migrate()
    if database.is_sqlite:
        connection: Any = sqlite3.connect(database.url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(database.url)
    with closing(connection):
        rolled_back = big.using(conn=connection).enqueue(LARGE)
        connection.rollback()
        stays = big.using(conn=connection).enqueue(LARGE)
        connection.commit()
    assert len(files(folder)) == 2
    assert swept() == 1
    [name] = files(folder)
    assert name.startswith(stays.id) and not name.startswith(rolled_back.id)
    assert ol.job(stays.id).args == {"data": LARGE}


@pytest.mark.kinds("sqlite")
def test_the_first_blob_in_a_caller_s_own_write_says_what_to_do(
    database: Database, shelf: Shelf
) -> None:
    """R168: the database's folder has no name yet, and cannot get one now."""
    hasty = StoreSettings(blob_over=1_000, lock_timeout=0.1)
    ol = Outlast(database.url, schema=database.schema, settings=hasty, blobs=shelf)

    @ol.task
    def big(data: str) -> None: ...

    ol.store.migrate()
    connection = sqlite3.connect(database.url.removeprefix("sqlite:///"))
    connection.execute("CREATE TABLE mine (n)")
    connection.execute("INSERT INTO mine VALUES (1)")
    with pytest.raises(StoreBusy, match="migrate"):
        big.using(conn=connection).enqueue(LARGE)
    connection.rollback()
    connection.close()
    ol.migrate()
    assert big.enqueue(LARGE).state == "ready"
    ol.close()


def test_a_key_that_stands_leaves_one_blob(
    ol: Outlast, folder: Path, swept: Callable[[], int]
) -> None:
    """R168, R024: the job that stands keeps its own."""

    @ol.task
    def big(data: str) -> None: ...

    first, again = (big.using(key="one").enqueue(LARGE) for _ in range(2))
    assert first.id == again.id and len(files(folder)) == 2
    assert swept() == 1
    assert ol.job(first.id).args == {"data": LARGE}


def test_what_is_young_or_not_ours_is_left_alone(
    ol: Outlast, folder: Path, swept: Callable[[], int], without: Outlast
) -> None:
    """R168: what may be in an open transaction, another database's, and what somebody put there."""
    assert ol.blobs is not None
    place, other = ol.blobs.namespace, "0" * 16
    id = "01998000-0000-7000-8000-000000000000"
    for where in (place, other):
        ol.blobs.location.put(args_blob(where, b"data").name(id), b"data")
    (folder / place / "README").write_text("mine")
    (folder / place / f"{id}.args").write_text("mine")
    ol.retention = RetentionSettings(blob_grace=3600.0)
    assert swept() == 0 and len(files(folder)) == 4
    ol.retention = RetentionSettings(blob_grace=0.0)
    assert swept() == 1 and swept() == 0
    assert len(list((folder / other).iterdir())) == 1
    assert {path.name for path in (folder / place).iterdir()} == {"README", f"{id}.args"}


def test_a_result_on_its_way_is_not_swept(ol: Outlast, swept: Callable[[], int]) -> None:
    """R168: however long the database takes to answer: its claim still holds."""

    @ol.task
    def gives() -> None: ...

    job = gives.enqueue()
    [mine] = ol.store.run(claim, ClaimRequest("w", "default", 1, 60.0))
    assert ol.blobs is not None
    on_its_way = result_blob(ol.blobs.namespace, mine.fence, b"data").name(job.id)
    of_a_zombie = result_blob(ol.blobs.namespace, mine.fence + 1, b"data").name(job.id)
    for name in (on_its_way, of_a_zombie):
        ol.blobs.location.put(name, b"data")
    assert ol.store.run(unreferenced, [on_its_way, of_a_zombie]) == [of_a_zombie]
    assert swept() == 1
    assert ol.blobs.location.get(on_its_way) == b"data"


def test_a_sweep_beside_enqueuers_removes_nothing_that_is_referred_to(
    ol: Outlast, folder: Path, swept: Callable[[], int]
) -> None:
    """R168: sweeps without end, beside those who enqueue, roll back, finish and purge. The grace is
    a moment here: all that is older than the longest of these transactions."""
    ol.retention = RetentionSettings(blob_grace=0.5)
    ol.migrate()

    @ol.task
    def big(data: str) -> None: ...

    until, wrong = time.monotonic() + 1.5, list[Any]()

    def enqueuer(number: int) -> None:
        try:
            n = 0
            while time.monotonic() < until:
                n += 1
                job = big.using(key=f"{number} {n // 2}").enqueue(f"{number} {n // 2}" + LARGE)
                if n % 5 == 0:
                    ol.cancel(job.id)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=enqueuer, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    removed = 0
    while any(thread.is_alive() for thread in threads):
        removed += swept()
        ol.purge(state="cancelled")
    assert wrong == [] and removed > 0
    for job in ol.jobs(limit=100_000):
        assert ol.job(job.id).args["data"].endswith(LARGE), "it is all there"


async def test_any_worker_that_has_the_store_sweeps_it(
    shelved: Outlast, shelf: Shelf, without: Outlast
) -> None:
    """R168, R089: a duty like others, on record; one without the store does not take it."""
    shelved.retention = RetentionSettings(blob_grace=0.0, blob_sweep_every=0.05)
    assert shelved.blobs is not None
    lost = args_blob(shelved.blobs.namespace, b"data").name("01998000-0000-7000-8000-000000000000")
    shelf.put(lost, b"data")
    shelf.away = True
    async with work(without):
        await aeventually(lambda: without.workers() != [])
    assert "blobs" not in {duty.name for duty in without.duties()}
    async with work(shelved):
        await aeventually(lambda: any(d.error for d in without.duties() if d.name == "blobs"))
        shelf.away = False
        await aeventually(lambda: shelf.things == {})

        def healed() -> bool:
            duties = {duty.name: duty for duty in without.duties()}
            return duties["blobs"].healed == 1 and duties["blobs"].error is None

        await aeventually(healed)


async def test_pruning_takes_blobs_along(ol: Outlast, folder: Path, database: Database) -> None:
    """R168, R088: by a worker's duty, for all queues and for one that keeps less."""
    ol.retention = RetentionSettings(keep_succeeded=3600.0, prune_every=0.05)

    @ol.task
    def gives(ctx: Context) -> str:
        return LARGE

    brief, long = ol.enqueue(gives.using(queue="brief").job(), gives.using(queue="long").job())
    ol.keep("brief", 0.0)
    async with work(ol):
        await ol.aresult(long.id, timeout=20)
        await aeventually(lambda: [name[:36] for name in files(folder)] == [long.id])
        past = "1.0" if database.is_sqlite else "to_timestamp(1)"
        sql(database, f"UPDATE {{job}} SET finished_at = {past} WHERE id = ?", long.id)
        await aeventually(lambda: files(folder) == [])
    assert ol.jobs() == [] and brief.id != long.id


@pytest.mark.kinds("sqlite")
def test_no_name_leads_out_of_the_directory(folder: Path) -> None:
    """R168, R138"""
    kept = FileBlobs(folder)
    good = args_blob("0" * 16, b"x").name("01998000-0000-7000-8000-000000000000")
    for name in ("../x", "/etc/passwd", f"../{good}", f"{good}/x", f"{good}\n", good.upper()):
        for verb in (kept.get, kept.delete, lambda name: kept.put(name, b"x")):
            with pytest.raises(ValueError, match="not the name of a blob"):
                verb(name)
    kept.put(good, b"x")
    assert kept.get(good) == b"x" and files(folder) == [good.partition("/")[2]]


@pytest.mark.kinds("sqlite")
def test_a_store_that_names_more_than_it_was_asked_for_loses_nothing_by_it(
    shelved: Outlast, shelf: Shelf
) -> None:
    """R168: another database's blobs are not ours to sweep, whoever tells of them."""

    class Talkative(Shelf):
        def names(self, after: str) -> Iterator[tuple[str, float]]:
            yield from ((name, 9e9) for name in sorted(self.things) if name > after)

    assert shelved.blobs is not None
    talkative = shelved.blobs.location = Talkative()
    id = "01998000-0000-7000-8000-000000000000"
    names = [args_blob(place, b"x").name(id) for place in (shelved.blobs.namespace, "f" * 16)]
    for name in names:
        talkative.put(name, b"x")
    assert list(shelved.blobs.old(0.0)) == names[:1]
