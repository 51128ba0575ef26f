"""The archive: what moves, what stays, and that nobody can tell the difference but the claim."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from outlast import Outlast
from outlast.model.errors import JobNotFound, StoreError, TooLate
from outlast.model.flow import chain
from outlast.model.ids import new_job_id
from outlast.model.job import Job
from outlast.model.settings import RetentionSettings
from outlast.ops import archive, bulk, erase, events, job_actions, report, retention, search, waits
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.archive import DAY_S, ArchiveCursor, partition_day, partition_name
from outlast.ops.report import Filter
from outlast.ops.search import ALL, JobQuery
from outlast.store import Store
from outlast.worker.archiver import Archiver
from tests.store.conftest import Run
from tests.store.flowing import call, calls, end_one, lay
from tests.store.jobs import column, end, put, put_and_take, take
from tests.support import Database

pytestmark = pytest.mark.kinds("postgres")

HOUR_S = 3600.0
MONTH = RetentionSettings(keep_succeeded=30 * DAY_S, archive_after=DAY_S)


@pytest.fixture
def run(store: Store) -> Run:
    """Blocking: the operations are driven the same way by asyncio, as other tests show."""
    return store.run


class Stopping:
    """The state of a worker that is not stopping."""

    stopping = False


def archiver(store: Store, keep: RetentionSettings = MONTH) -> Archiver:
    assert store.partitions is not None
    return Archiver(store, store.partitions, Stopping(), keep)  # type: ignore[arg-type]


def archive_all(store: Store, keep: RetentionSettings = MONTH) -> int:
    """One pass of the duty; returns what it has done."""

    async def once() -> int:
        try:
            return (await archiver(store, keep).once()).healed
        finally:
            await store.aclose()

    return asyncio.run(once())


def succeed(run: Run, result: str = "1", **said: Any) -> Job:
    held = put_and_take(run, **said)
    end(run, held, result=result)
    return run(report.job, held.id)


def age(database: Database, days: float = 2.0, where: str = "true") -> None:
    """Let ended jobs have ended, and been made, so long ago."""
    shift = f"make_interval(secs => {days * DAY_S})"
    database.rows(
        f"UPDATE job SET finished_at = finished_at - {shift}, created_at = created_at - {shift}"
        f" WHERE finished_at IS NOT NULL AND {where}"
    )


def archived(database: Database) -> list[str]:
    return [str(id) for (id,) in database.rows("SELECT id FROM past ORDER BY id")]


def test_a_succeeded_job_moves_and_is_seen_as_before(
    run: Run, store: Store, database: Database
) -> None:
    """R249: by id, in lists, in searches, in counts, awaited and watched."""
    job = succeed(run, queue="mail", tenant="acme")
    other = put(run, queue="mail")[0]
    age(database)
    before = run(report.job, job.id)
    counts, kinds = run(report.counts), run(search.count_by_kind)
    ended, status = run(report.ended, [job.id, other.id]), run(events.job_status, [job.id])
    assert archive_all(store) == 1
    assert (column(database, "id::text"), archived(database)) == ([other.id], [job.id])
    assert run(report.job, job.id) == before
    assert run(report.counts) == counts
    assert [(k.queue, k.state, k.number) for k in run(search.count_by_kind)] == [
        (k.queue, k.state, k.number) for k in kinds
    ]
    assert run(report.ended, [job.id, other.id]) == ended
    assert run(events.job_status, [job.id]) == status
    assert run(report.history, job.id) == ([], [])
    everything = Filter()
    for which in (
        everything,
        Filter(queue="mail"),
        Filter(state="succeeded"),
        Filter(tenant="acme"),
    ):
        assert job.id in [one.id for one in run(report.jobs, which, None, 10)], which
        assert run(report.count, which) == (2 if which in (everything, Filter(queue="mail")) else 1)
    assert run(report.jobs, Filter(state="ready"), None, 10)[0].id == other.id
    acme = Access("acme")
    for query in (
        ALL,
        JobQuery(state="succeeded"),
        JobQuery(text=job.id[:13]),
        JobQuery(task="work"),
    ):
        found, _ = run(search.search, query, acme, None, 10)
        assert [one.id for one in found] == [job.id], query
        assert run(search.count_window, query, acme, None)[0] == 1
    run(search.all_in_reach, [job.id, other.id], ALL_JOBS)
    with pytest.raises(JobNotFound):
        run(report.job, job.id, Access("other"))
    with pytest.raises(JobNotFound):
        run(search.all_in_reach, [job.id], Access("other"))


def test_pages_go_through_both_tables(run: Run, store: Store, database: Database) -> None:
    """R249: in one order, each job once, however small the pages are."""
    jobs = [succeed(run) for _ in range(9)]
    age(database, where=f"id IN ({', '.join(repr(job.id) for job in jobs[1:8:2])})")
    assert archive_all(store) == 4
    wanted = [job.id for job in reversed(jobs)]
    for verb in ("jobs", "search"):
        seen: list[str] = []
        before: str | None = None
        while len(seen) < 20:
            if verb == "jobs":
                page = run(report.jobs, Filter(), before, 2)
                before = page[-1].id if page else None
            else:
                page, before = run(search.search, JobQuery(task="work"), ALL_JOBS, before, 2, 3)
            seen += [job.id for job in page]
            if before is None:
                break
        assert seen == wanted, verb
    assert run(bulk.matching, Filter(state="succeeded"), None, 20) == wanted


def test_what_others_refer_to_stays(run: Run, store: Store, database: Database) -> None:
    """R249, R165: keys hold as long as their jobs are kept, flows are whole, histories are read
    where they were written; dead and cancelled jobs can be retried."""
    succeed(run, key="k")
    held = put_and_take(run)
    end(run, held, "failed")
    database.rows("UPDATE job SET run_at = now(), state = 'ready' WHERE state = 'scheduled'")
    end(run, take(run)[0])
    one = succeed(run)
    run(job_actions.record_action, "note", [one.id], {"by": "ann"})
    lay(run, chain(*calls(2)))
    end_one(run), end_one(run)
    (first,) = lay(run, call(1))
    end_one(run)
    lay(run, call(2, after=first))
    end_one(run)
    end(run, put_and_take(run), "permanent")
    run(job_actions.cancel, put(run)[0].id, "ann", "")
    succeed(run, args='["outlast:blob", "x", 1, 2]')
    age(database)
    staying = column(database, "id")
    assert archive_all(store) == 0
    assert (column(database, "id"), archived(database)) == (staying, [])


def test_a_queue_that_keeps_less_does_not_move(run: Run, store: Store, database: Database) -> None:
    """R249: with its own retention, or with the default one; and what moved before that was set
    goes when it is due."""
    kept, moved = succeed(run, queue="short"), succeed(run, queue="later")
    age(database)
    run(retention.set_retention, "short", 3 * DAY_S, "ann")
    assert archive_all(store, RetentionSettings()) == 0
    assert archive_all(store) == 1
    assert (column(database, "id::text"), archived(database)) == ([kept.id], [moved.id])
    run(retention.set_retention, "later", 3 * DAY_S, "ann")
    assert archive_all(store) == 0
    run(retention.set_retention, "later", HOUR_S, "ann")
    assert archive_all(store) == 1
    assert archived(database) == []
    assert run(report.counts)["succeeded"] == 1


@pytest.mark.kinds("postgres", "pgbouncer")
def test_days_are_dropped_whole(run: Run, store: Store, database: Database) -> None:
    """R249: when every job of the day is past its retention, with the counts."""
    old, new = succeed(run), succeed(run)
    age(database, 29.0, f"id = '{old.id}'")
    age(database, 3.0, f"id = '{new.id}'")
    assert archive_all(store) == 2
    state = run(archive.archive_state)
    assert (state.jobs, state.partitions, state.detached) == (2, 2, ())
    two_weeks = RetentionSettings(keep_succeeded=14 * DAY_S)
    assert archive_all(store, two_weeks) == 1
    assert archived(database) == [new.id]
    assert (run(archive.archive_state).partitions, run(report.counts)["succeeded"]) == (1, 1)
    with pytest.raises(JobNotFound):
        run(report.job, old.id)
    assert archive_all(store, RetentionSettings(keep_succeeded=HOUR_S)) == 1, "switched off"
    assert run(archive.archive_state) == archive.ArchiveState()


@pytest.mark.kinds("postgres", "pgbouncer")
@pytest.mark.parametrize("begun", ["detached", "pending"])
def test_a_drop_that_was_interrupted_is_finished(
    store: Store, database: Database, begun: str
) -> None:
    """R249: a kill between the detach and the drop, or in the middle of the detach."""
    assert store.partitions is not None
    day = 20_000
    name = partition_name(day)
    assert partition_day(name) == day
    store.partitions.create(day)
    store.partitions.create(day)
    detach = f"ALTER TABLE past DETACH PARTITION {name}"
    if begun == "detached":
        database.rows(detach)
        with pytest.raises(StoreError, match="is detached"):
            store.partitions.create(day)
    else:
        with database.connect() as reader, database.connect() as killed:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM past")
            killed.execute("SET statement_timeout = 200")
            with pytest.raises(psycopg.errors.QueryCanceled):
                killed.execute(f"{detach} CONCURRENTLY")
    assert archive_all(store) == 1
    assert store.run(archive.archive_state) == archive.ArchiveState()


def test_a_reader_of_the_archive_delays_a_drop_and_nobody_else(
    run: Run, store: Store, database: Database
) -> None:
    """R249: a long report holds the day; the duty goes on, and drops it in a later pass."""
    old = succeed(run)
    age(database, 29.0)
    assert archive_all(store) == 1
    short = RetentionSettings(keep_succeeded=2 * DAY_S)
    with database.connect() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM past")
        twin = store.clone(lock_timeout=0.2)
        try:
            assert archive_all(twin, short) == 0
        finally:
            twin.close()
        run(report.jobs, Filter(), None, 10)
    assert archive_all(store, short) == 1
    with pytest.raises(JobNotFound):
        run(report.job, old.id)


def test_actions_on_an_archived_job(run: Run, store: Store, database: Database) -> None:
    """R249: as on any succeeded one; erasing moves it back, under its record."""
    job, purged = succeed(run), succeed(run)
    age(database)
    assert archive_all(store) == 2
    for action in (job_actions.redrive_one, lambda id, by: job_actions.cancel(id, by, "")):
        with pytest.raises(TooLate):
            run(action, job.id, "ann")
    removed, count = run(bulk.purge_some, [purged.id], "succeeded", HOUR_S, "ann", {})
    assert (set(removed.ids), int(count)) == ({purged.id}, 1)
    _, count = run(bulk.purge_some, [job.id], "succeeded", 9 * DAY_S, "ann", {})
    assert dict(count.left) == {"ended too recently": 1}
    assert run(report.counts)["succeeded"] == 1
    assert run(erase.take_result, job.id, "ann", new_job_id()) == ()
    assert (column(database, "id::text"), archived(database)) == ([job.id], [])
    assert run(report.job, job.id).args is None
    assert archive_all(store) == 0, "its record stays with it"


def test_a_job_after_an_archived_one(
    run: Run, store: Store, database: Database, app: Outlast
) -> None:
    """R249: its prerequisite has succeeded; its result can be read."""
    one = succeed(run, result="7")
    age(database)
    assert archive_all(store) == 1
    (last,) = lay(run, call(2, after=one))
    assert last.state == "ready"
    assert (column(database, "id::text"), archived(database)) == (sorted([one.id, last.id]), [])
    assert archive_all(store) == 0


def test_a_wait_for_an_archived_job(run: Run, store: Store, database: Database) -> None:
    one = succeed(run)
    age(database)
    assert archive_all(store) == 1
    assert run(waits.wait_subject, one.id) == (waits.WaitKind.JOB, one.id)


def test_a_row_that_somebody_holds_is_left_for_later(
    run: Run, store: Store, database: Database
) -> None:
    held, free = succeed(run), succeed(run)
    age(database)
    with database.connect() as other:
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (held.id,))
        assert archive_all(store) == 1
        assert archived(database) == [free.id]
    assert archive_all(store) == 1


def test_the_archive_has_every_column_of_a_job(store: Store, database: Database) -> None:
    """The row that comes back is the row that left."""
    names = {
        table: [
            name
            for (name,) in database.rows(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass"
                " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                (f"{database.schema}.{table}",),
            )
        ]
        for table in ("job", "past")
    }
    moved = store.queries["move_to_past"].sql.split(".past (")[1].split(")")[0]
    assert names["job"] == names["past"]
    assert sorted(name.strip() for name in moved.split(",")) == sorted(names["job"])


def test_a_page_continues_after_the_last(run: Run, store: Store, database: Database) -> None:
    """Jobs that stay are not read again in every pass."""
    for n in range(3):
        succeed(run, key=f"k{n}")
    succeed(run)
    age(database)
    page = run(archive.archivable, DAY_S, 30 * DAY_S, ArchiveCursor(), 3)
    assert (page.read, page.movable) == (3, [])
    page = run(archive.archivable, DAY_S, 30 * DAY_S, page.next, 3)
    assert (page.read, len(page.movable)) == (1, 1)
    assert run(archive.archivable, DAY_S, 30 * DAY_S, page.next, 3).read == 0
