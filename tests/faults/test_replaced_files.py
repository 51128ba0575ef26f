"""A SQLite file that is deleted, renamed or replaced while it is in use: nothing is acknowledged
that its path does not hold."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from outlast import Outlast, StoreError, StoreUnavailable
from outlast.model.errors import NoDatabase, SchemaMismatch
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App

pytestmark = pytest.mark.kinds("sqlite")

MANY = 10


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for name in (path, log_of(path), index_of(path)):
        name.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace(path: Path) -> None:
    """As whoever restores a backup should do it, but for stopping what uses it."""
    copy = backup(path)
    for name in (log_of(path), index_of(path)):
        name.unlink()
    copy.replace(path)


def replace_file_alone(path: Path) -> None:
    backup(path).replace(path)


def delete_log(path: Path) -> None:
    log_of(path).unlink()


def delete_index(path: Path) -> None:
    index_of(path).unlink()


def rename_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def backup(path: Path) -> Path:
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def index_of(path: Path) -> Path:
    return Path(f"{path}-shm")


def ids_in(path: Path) -> set[str]:
    """What is there for a process that starts now."""
    if not path.exists():
        return set()
    with closing(sqlite3.connect(path)) as connection:
        return {id for (id,) in connection.execute("SELECT id FROM outlast_job")}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "jobs.db"


@pytest.mark.parametrize(
    "fault",
    [delete, delete_all, rename, replace, replace_file_alone, rename_folder, delete_log,
     delete_index],
)  # fmt: skip
def test_nothing_is_acknowledged_that_the_path_does_not_hold(
    place: Path, fault: Callable[[Path], None]
) -> None:
    """R220: enqueue, the fault, then enqueue ten times; whatever was acknowledged is there."""
    with Outlast(f"sqlite:///{place}") as ol:

        @ol.task
        def work(n: int) -> None: ...

        before = {work.enqueue(n).id for n in range(3)}
        fault(place)
        acknowledged, refused = set(), []
        for n in range(MANY):
            try:
                acknowledged.add(work.enqueue(n).id)
            except StoreUnavailable as error:
                refused.append(str(error))
    assert acknowledged - ids_in(place) == set()
    if place.exists():  # it is followed, and goes on
        assert len(acknowledged) == MANY, refused
        assert before <= ids_in(place)
    else:
        assert not acknowledged
        assert all("was deleted or renamed" in reason for reason in refused)
        assert not place.parent.exists() or not place.exists()  # and none is made


@pytest.mark.parametrize("fault", [rename, replace, delete_log])
async def test_the_same_awaited(place: Path, fault: Callable[[Path], None]) -> None:
    """R220: by the asyncio verbs."""
    async with Outlast(f"sqlite:///{place}") as ol:

        @ol.task
        def work(n: int) -> None: ...

        await work.aenqueue(0)
        fault(place)
        acknowledged = set()
        for n in range(MANY):
            try:
                acknowledged.add((await work.aenqueue(n)).id)
            except StoreUnavailable:
                continue
    assert acknowledged - ids_in(place) == set()


def test_a_file_that_comes_back_is_used_again(place: Path) -> None:
    """R220: the same file renamed back, and a link that is pointed elsewhere."""
    real, other = place.with_name("real.db"), place.with_name("other.db")
    with Outlast(f"sqlite:///{real}") as ol:
        ol.migrate()
    shutil.copy(real, other)
    place.symlink_to(real)
    with Outlast(f"sqlite:///{place}") as ol:

        @ol.task
        def work() -> None: ...

        first = work.enqueue()
        place.rename(place.with_name("aside"))
        with pytest.raises(StoreUnavailable, match="was deleted or renamed"):
            work.enqueue()
        place.with_name("aside").rename(place)
        assert ol.job(first.id).id == first.id
        place.unlink()
        place.symlink_to(other)
        second = work.enqueue()
        assert second.id in ids_in(other)
        assert [job.id for job in ol.jobs()] == [second.id]


def test_a_file_without_our_tables_is_not_taken_for_ours(place: Path) -> None:
    """R220: tables are made by a process that starts, or by migrate, not under a running one."""
    with Outlast(f"sqlite:///{place}") as ol:

        @ol.task
        def work() -> None: ...

        work.enqueue()
        for name in (place, log_of(place), index_of(place)):
            name.unlink()
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("CREATE TABLE theirs (n)")
        with pytest.raises(SchemaMismatch, match="without our tables"):
            work.enqueue()
        with closing(sqlite3.connect(place)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        assert tables == [("theirs",)]
        assert ol.migrate() != []
        assert sum(ol.counts().values()) == 0


def test_completing_in_a_file_that_is_gone_is_not_acknowledged(place: Path) -> None:
    """R220: a lent connection's commit is compared, too."""
    from outlast.store.handler_connection import open_transaction

    with Outlast(f"sqlite:///{place}") as ol:
        ol.migrate()
        with (
            pytest.raises(StoreError, match="was deleted or renamed"),
            open_transaction(ol.store) as lent,
        ):
            lent.connection.execute("CREATE TABLE mine (n)")
            rename(place)
            lent.commit()


def test_a_worker_follows_a_restored_copy(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R220: within two seconds; what it held, and the copy holds too, it finishes there."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    held = app.gated.enqueue("go")
    app.start_worker(processes)
    app.ledger.wait("start")
    app.finished(app.mark.enqueue(1))
    replace(database.path)
    took = []
    for n in range(2, 5):
        job = app.mark.enqueue(n)
        done = app.finished(job)
        took.append((done.finished_at - done.created_at).total_seconds())
    assert took[0] < 2.0, took
    (app.folder / "go").touch()
    assert app.finished(held).attempt == 1
    proofs = Path(f"{os.path.realpath(database.path)}-workers")
    assert [worker.alive for worker in app.ol.workers()] == [True]
    assert len(list(proofs.iterdir())) == 1
    app.close()


def test_a_worker_waits_for_a_deleted_file(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R220: it makes none anew, stays alive, and goes on when the file is back."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    worker = app.start_worker(processes)
    app.finished(app.mark.enqueue(1))
    copy = backup(database.path)
    delete_all(database.path)
    with pytest.raises(StoreUnavailable):
        app.mark.enqueue(2)
    eventually(lambda: "was deleted or renamed" in worker.output(), PATIENCE)
    assert not database.path.exists()
    assert not worker.ended
    copy.replace(database.path)
    app.finished(app.mark.enqueue(3))
    app.close()


def test_a_file_deleted_after_close_is_not_made_by_reading(database: Database) -> None:
    """R232: a client that was closed and is used again finds out anew whether there is a database;
    an enqueue makes one, with its tables."""
    ol = Outlast(database.url)

    @ol.task
    def work() -> None: ...

    work.enqueue()
    ol.close()
    path = Path(str(database.path))
    for name in (path, log_of(path), index_of(path)):
        name.unlink(missing_ok=True)
    with pytest.raises(NoDatabase):
        ol.counts()
    assert not path.exists()
    work.enqueue()
    assert ol.counts()["ready"] == 1
    ol.close()


RECOVERING = """
    import fcntl, os, sys, time
    shared = os.open(sys.argv[1], os.O_RDWR)
    for byte in (120, 122):  # the write lock and the recovery lock of the index
        fcntl.lockf(shared, fcntl.LOCK_EX, 1, byte)
    os.pwrite(shared, b"?", 40)  # the index is to be made anew
    print("recovering", flush=True)
    time.sleep(60)
"""


def test_a_handlers_transaction_waits_for_a_recovery(
    database: Database, processes: Processes
) -> None:
    """R220: while another process recovers the log, as after a crash, a transaction that a handler
    begins waits as for any other writer."""
    ol = Outlast(database.url)
    ol.migrate()
    connection = ol.store.borrow()  # type: ignore[attr-defined]
    connection.execute("SELECT count(*) FROM outlast_job").fetchall()
    other = processes.python(RECOVERING, index_of(Path(str(database.path))))
    eventually(lambda: "recovering" in other.output(), 20)
    with pytest.raises(sqlite3.OperationalError) as told:
        connection.begin(0.0)
    assert told.value.sqlite_errorcode == sqlite3.SQLITE_BUSY_RECOVERY
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(connection.begin, 20.0)
        assert not wait([begun], timeout=0.2).done, "it waits"
        other.kill()
        begun.result()
    connection.rollback()
    ol.store.return_borrowed(connection)  # type: ignore[attr-defined]
    ol.close()
