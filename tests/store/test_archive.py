"""The archive: what moves, what stays, and that nobody can tell the difference but the claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outlast import Outlast
from outlast.model.errors import JobNotFound, TooLate
from outlast.model.flow import chain
from outlast.model.ids import new_job_id
from outlast.model.job import Job
from outlast.model.settings import RetentionSettings
from outlast.model.stream import StreamCursor
from outlast.ops import archive, bulk, erase, events, job_actions, report, retention, search, waits
from outlast.ops.access import ALL_JOBS, Access
from outlast.ops.archive import DAY_S, ArchiveCursor, partition_day, partition_name
from outlast.ops.operation import Op, Pipeline, Rows, Statement
from outlast.ops.report import Filter
from outlast.ops.search import ALL, JobQuery
from outlast.ops.streams import stream_page
from outlast.store import Store
from outlast.worker.archiver import Archiver
from tests.store.conftest import Run
from tests.store.flowing import call, calls, end_one, lay
from tests.store.jobs import column, end, put, put_and_take, take
from tests.support import Database, eventually

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


REFERENCES = {
    "the state": "UPDATE job SET state = 'cancelled', result = NULL",
    "a key": "UPDATE job SET key = 'k'",
    "a flow": "UPDATE job SET flow = gen_random_uuid()",
    "a part of a flow": "UPDATE job SET team = gen_random_uuid()",
    "followers": "UPDATE job SET tied = true",
    "a handler that waits for it": "UPDATE job SET awaited = true",
    "hooks": "UPDATE job SET hooks = '{}'",
    "a blob of arguments": """UPDATE job SET args = '["outlast:blob","x",1,2]'""",
    "a blob as its result": """UPDATE job SET result = '["outlast:blob","x",1,2]'""",
    "the queue's retention": "INSERT INTO queue (name, keep, changed_at)"
    " SELECT queue, 259200, now() FROM job",
    "an edge to a follower": "INSERT INTO edge SELECT id, gen_random_uuid(), 0 FROM job",
    "an edge to a prerequisite": "INSERT INTO edge SELECT gen_random_uuid(), id, 0 FROM job",
    "an attempt": "INSERT INTO attempt (job, fence, attempt, outcome, finished_at)"
    " SELECT id, 1, 1, 'failed', now() FROM job",
    "an event": "INSERT INTO event (job, kind, at) SELECT id, 'note', now() FROM job",
    "a step": "INSERT INTO step SELECT id, 's', '1', 1, 1, now() FROM job",
    "a wait": "INSERT INTO wait (job, name, kind, subjects, fence, since)"
    " SELECT id, 'w', 'sleep', '[]', 1, now() FROM job",
    "a wait for its end": "INSERT INTO wait (job, name, kind, subjects, awaits, fence, since)"
    " SELECT gen_random_uuid(), 'w', 'job', '[]', id, 1, now() FROM job",
    "a signal": "INSERT INTO signal (job, name, value, sent_by, at, unseen)"
    " SELECT id, 's', '1', 'ann', now(), false FROM job",
    "a link": "INSERT INTO signal_link"
    " (id, hash, job, name, text, created_by, created_at, expires_at)"
    " SELECT gen_random_uuid(), 'h', id, 's', '', 'ann', now(), now() FROM job",
    "output": "INSERT INTO stream (job, fence, n, attempt, data, total, at)"
    " SELECT id, 1, 1, 1, '[]', 2, now() FROM job",
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_each_reference_alone_keeps_a_job(
    run: Run, store: Store, database: Database, reference: str
) -> None:
    """R249: no condition stands in for another one. It is checked when a page is chosen, and again
    when the page is moved."""
    job = succeed(run)
    age(database)
    day = (DAY_S, 30 * DAY_S)
    assert run(archive.archivable, *day, ArchiveCursor(), 9).movable.keys() == {job.id}
    database.rows(REFERENCES[reference])
    assert run(archive.archivable, *day, ArchiveCursor(), 9).movable == {}
    assert run(archive.move, [job.id], *day) == 0
    assert column(database, "id::text") == [job.id]


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
        assert not store.partitions.create(day)
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


@pytest.mark.parametrize("verb", ["after", "erase", "take result"])
def test_two_that_move_a_job_back_at_once_both_find_it(
    run: Run, store: Store, database: Database, verb: str
) -> None:
    """R249: the second one waits for the first, and then finds the job where it belongs."""
    one = succeed(run)
    age(database)
    assert archive_all(store) == 1

    def act() -> Any:
        match verb:
            case "after":
                return lay(store.run, call(2, after=one))[0].state
            case "erase":
                return store.run(erase.erase, one.id, "ann")[0].id
            case _:
                return store.run(erase.take_result, one.id, "ann", new_job_id())

    with database.connect() as first, ThreadPoolExecutor(1) as pool:
        first.execute("BEGIN")
        _restore_on(first, one.id, store)
        second = pool.submit(act)
        eventually(lambda: database.rows(blocked(database, "DELETE FROM")))
        first.execute("COMMIT")
        assert second.result(30) == {"after": "ready", "erase": one.id, "take result": ()}[verb]
    assert (archived(database), one.id in column(database, "id::text")) == ([], True)
    assert run(archive.archive_state).jobs == 0


def blocked(database: Database, text: str) -> str:
    """A query for the statements on our tables with this text that wait for a lock."""
    return (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        f" AND query LIKE '%%{text}%%' AND query LIKE '%%\"{database.schema}\"%%'"
    )


def _restore_on(link: Any, id: str, store: Store) -> None:
    """Move a job back in a transaction that stays open."""
    given = {"ids": f'["{id}"]', "low": 0.0, "high": archive.ALL_TIME[1], **ALL_JOBS.params}
    text, bound, _ = store.render(Statement("restore_from_past", given))  # type: ignore[attr-defined]
    assert link.execute(text, bound).fetchall() == [(id,)]


def acting(operation: Callable[..., Op[Any]], at: str, act: Callable[[], object]) -> Any:
    """An operation in which somebody else does something right after the first statement of a
    name."""

    def acted(*args: Any, **named: Any) -> Op[Any]:
        script, answer, pending = operation(*args, **named), None, True
        while True:
            try:
                asked = script.send(answer)
            except StopIteration as done:
                return done.value
            answer = yield asked
            parts = asked if isinstance(asked, Pipeline) else (asked,)
            if pending and any(isinstance(one, Statement) and one.name == at for one in parts):
                pending = False
                act()

    return acted


def _awaited(id: str) -> Op[Any]:
    return (yield from waits.wait_subject(id))


@pytest.mark.parametrize(
    ("reader", "at"),
    [
        (report.job, "job"),
        (lambda id: report.ended([id]), "ended"),
        (lambda id: events.job_status([id]), "job_status"),
        (lambda id: search.all_in_reach([id], ALL_JOBS), "jobs_in_reach"),
        (_awaited, "awaited_job"),
        (lambda id: stream_page(id, StreamCursor()), "job_status"),
    ],
    ids=["job", "ended", "job_status", "all_in_reach", "wait_subject", "stream_page"],
)
def test_a_job_that_is_moved_back_between_two_looks_is_found(
    run: Run, store: Store, database: Database, reader: Any, at: str
) -> None:
    """R249: it was not in the one table yet, and is not in the other one any more."""
    one = succeed(run)
    age(database)
    expected = run(reader, one.id)
    assert archive_all(store) == 1
    assert run(reader, one.id) == expected
    back = acting(reader, at, lambda: store.run(archive.restore, [one.id]))
    assert run(back, one.id) == expected
    assert archived(database) == []


@pytest.mark.fresh
def test_a_job_that_is_erased_during_a_move_stays_with_its_record(
    run: Run, store: Store, database: Database
) -> None:
    """R249: a reference that is committed after the move began counts, too."""
    first, second = succeed(run), succeed(run)
    age(database)
    assert store.partitions is not None
    page = run(archive.archivable, DAY_S, 30 * DAY_S, ArchiveCursor(), 9)
    for day in set(page.movable.values()):
        assert store.partitions.create(day)
    database.rows(
        "CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF OLD.id = '{first.id}' THEN PERFORM pg_advisory_xact_lock(17, 17); END IF;"
        " RETURN OLD; END $$"
    )
    database.rows(
        "CREATE TRIGGER wait_here BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION wait_here()"
    )
    with database.connect() as other, ThreadPoolExecutor(2) as pool:
        other.execute("SELECT pg_advisory_lock(17, 17)")
        moved = pool.submit(store.run, archive.move, [first.id, second.id], DAY_S, 30 * DAY_S)
        eventually(lambda: database.rows(blocked(database, "WITH chosen")))
        erased = pool.submit(store.run, erase.erase, second.id, "ann")
        eventually(lambda: erased.done() or database.rows(blocked(database, "FOR UPDATE")))
        other.execute("SELECT pg_advisory_unlock(17, 17)")
        moved.result(30), erased.result(30)
    assert run(report.ended, [second.id])[second.id][1] is report.ERASED
    assert len(run(report.history, second.id)[1]) == 1
    assert archived(database) == [first.id]


def test_a_day_whose_table_is_detached_stops_no_other_day(
    run: Run, store: Store, database: Database
) -> None:
    """R249: somebody has detached it, to keep it. Its jobs stay where they are; others move, and
    days that are over are dropped."""
    kept, moved, old = (succeed(run) for _ in range(3))
    for job, days in ((kept, 3.0), (moved, 2.0), (old, 29.0)):
        age(database, days, f"id = '{job.id}'")
    assert archive_all(store) == 3
    run(archive.restore, [kept.id, moved.id])
    (_, (day, _), (next_day, _)) = run(partitions)
    database.rows(f"ALTER TABLE past DETACH PARTITION {day}")
    week = RetentionSettings(keep_succeeded=7 * DAY_S, archive_after=DAY_S)
    assert archive_all(store, week) == 2
    assert (column(database, "id::text"), archived(database)) == ([kept.id], [moved.id])
    assert run(partitions) == [(day, False), (next_day, True)]


def test_a_day_that_cannot_be_dropped_stops_no_other_day(
    run: Run, store: Store, database: Database
) -> None:
    """R249: a report of somebody's has a view of it."""
    first, second = succeed(run), succeed(run)
    age(database, 29.0, f"id = '{first.id}'")
    age(database, 28.0, f"id = '{second.id}'")
    assert archive_all(store) == 2
    ((day, _), _) = run(partitions)
    week = RetentionSettings(keep_succeeded=7 * DAY_S)
    database.rows(f"CREATE VIEW report AS SELECT id FROM {day}")
    assert archive_all(store, week) == 1
    assert run(partitions) == [(day, False)]
    database.rows("DROP VIEW report")
    assert archive_all(store, week) == 1
    assert run(archive.archive_state) == archive.ArchiveState()


def partitions() -> Op[Rows]:
    rows: Rows = yield Statement("past_partitions")
    return rows


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
    assert (page.read, page.movable) == (3, {})
    page = run(archive.archivable, DAY_S, 30 * DAY_S, page.next, 3)
    assert (page.read, len(page.movable)) == (1, 1)
    assert run(archive.archivable, DAY_S, 30 * DAY_S, page.next, 3).read == 0
