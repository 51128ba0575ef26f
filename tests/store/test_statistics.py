"""Statistics: counted from the rows, exact, again and again the same, and never without end."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pytest

from outlast import OutlastError
from outlast.model.histogram import BOUNDS, BUCKETS, DurationHistogram, merge_histograms
from outlast.ops import statistics
from outlast.ops.access import Access
from outlast.ops.statistics import LONG_SPAN_S, OTHERS, SPAN_S, StatisticsRow, bounded
from outlast.store import Store
from outlast.worker.stats_collector import RECOUNT_AFTER_S, SETTLE_S, StatsCollector, spans_due
from tests.store.jobs import Run, end, put, set_all, table, take
from tests.support import Database


def now_of(run: Run) -> int:
    _, now = run(statistics.newest_span)
    return int(now) // SPAN_S * SPAN_S


def all_ended_at(database: Database, at: float) -> None:
    """As if all that ended had ended then, after having waited and run for a while."""
    moment = f"{at}" if database.is_sqlite else f"to_timestamp({at})"
    waited = f"{at - 0.5}" if database.is_sqlite else f"to_timestamp({at - 0.5})"
    began = f"{at - 0.3}" if database.is_sqlite else f"to_timestamp({at - 0.3})"
    where = "state IN ('succeeded', 'dead', 'cancelled')"
    set_all(database, f"run_at = {waited}, started_at = {began}, finished_at = {moment}", where)
    with database.connect() as connection:
        connection.execute(f"UPDATE {table(database, 'attempt')} SET finished_at = {moment}")


def some_ended(run: Run) -> None:
    """Of acme: three succeeded, one dead, one failed and will be tried again; of other: two."""
    for tenant, outcomes in (
        ("acme", ["succeeded"] * 3 + ["permanent", "failed"]),
        ("other", ["succeeded", "cancelled"]),
    ):
        put(run, len(outcomes) + 1, tenant=tenant, queue=tenant)
        for claim, outcome in zip(take(run, len(outcomes), queue=tenant), outcomes, strict=True):
            end(run, claim, outcome)


def test_what_ended_is_counted_by_tenant_and_queue(run: Run, database: Database) -> None:
    some_ended(run)
    at = now_of(run) - 600
    all_ended_at(database, at + 3.0)
    there = run(statistics.depths)
    assert run(statistics.count, at, there) == 6
    acme, other = run(statistics.read_statistics, SPAN_S, at, at + SPAN_S)
    assert (acme.tenant, acme.succeeded, acme.dead, acme.failed) == ("acme", 3, 1, 2)
    assert (other.tenant, other.succeeded, other.cancelled) == ("other", 1, 1)
    assert acme.depths == {"ready": 1, "scheduled": 1} and other.depths == {"ready": 1}
    assert acme.waits.count == 4 and acme.waits.mean == pytest.approx(0.2, abs=0.01)
    assert acme.runs.percentile(0.5) == pytest.approx(0.35, abs=0.15), "within its class"
    (mine,) = run(statistics.read_statistics, SPAN_S, at, at + SPAN_S, Access("other"))
    assert mine.tenant == "other", "a tenant reads its own"


def test_counted_again_it_is_the_same_and_who_came_late_is_in_it(
    run: Run, database: Database
) -> None:
    some_ended(run)
    at = now_of(run) - 600
    all_ended_at(database, at + 3.0)
    run(statistics.count, at, run(statistics.depths))
    first = run(statistics.read_statistics, SPAN_S, at, at + SPAN_S)
    run(statistics.count, at)
    assert run(statistics.read_statistics, SPAN_S, at, at + SPAN_S) == first, "depths stand, too"
    end(run, take(run, 1, queue="acme")[0])
    all_ended_at(database, at + 4.0)
    run(statistics.count, at)
    assert run(statistics.read_statistics, SPAN_S, at, at + SPAN_S)[0].succeeded == 4
    with database.connect() as connection:
        connection.execute(f"DELETE FROM {table(database, 'job')} WHERE state = 'dead'")
    run(statistics.count, at)
    acme = run(statistics.read_statistics, SPAN_S, at, at + SPAN_S, Access("acme"))[0]
    assert (acme.succeeded, acme.dead) == (4, 1), "one is gone, and still known"


@pytest.mark.kinds("sqlite", "postgres")
async def test_a_pass_counts_what_was_not_counted_and_looks_back_once(
    store: Store, database: Database
) -> None:
    run = store.run
    some_ended(run)
    counter = StatsCollector(store)
    await counter.once()
    newest, _ = run(statistics.newest_span)
    assert newest is not None
    all_ended_at(database, newest - RECOUNT_AFTER_S + SPAN_S + 1.0)  # committed late, all of it
    await counter._recount(newest + SPAN_S)
    found = run(
        statistics.read_statistics,
        SPAN_S,
        newest - RECOUNT_AFTER_S + SPAN_S,
        newest - RECOUNT_AFTER_S + 2 * SPAN_S,
    )
    assert sum(line.finished for line in found) == 6


def test_long_spans_are_made_of_short_ones(run: Run, database: Database) -> None:
    some_ended(run)
    at = now_of(run) // LONG_SPAN_S * LONG_SPAN_S - LONG_SPAN_S
    for seconds, ready in ((0, 50), (30, 1)):
        all_ended_at(database, at + seconds + 1.0)
        there = {("acme", "acme"): {"ready": ready, "scheduled": 1}}
        run(statistics.count, at + seconds, there)
    run(statistics.fold, at)
    acme, _other = run(statistics.read_statistics, LONG_SPAN_S, at, at + 1)
    assert acme.succeeded == 6 and acme.depths == {"ready": 50, "scheduled": 1}, "the most"
    run(statistics.prune_statistics, at + LONG_SPAN_S, at)
    assert run(statistics.read_statistics, SPAN_S, 0, 2**40) == []
    assert len(run(statistics.read_statistics, LONG_SPAN_S, 0, 2**40)) == 2


def test_the_database_s_classes_are_ours(run: Run, database: Database) -> None:
    """The bounds stand twice, in Python and in SQL."""
    spans = [0.0004, *[bound * 1.01 for bound in BOUNDS]]
    put(run, len(spans))
    at = now_of(run) - 600
    for claim, seconds in zip(take(run, len(spans)), spans, strict=True):
        end(run, claim)
        moment = "{}" if database.is_sqlite else "to_timestamp({})"
        began, due = (moment.format(at + 5 - seconds * n) for n in (1, 2))
        where = f"id = '{claim.id}'"
        ended = moment.format(at + 5)
        set_all(database, f"run_at={due}, started_at={began}, finished_at={ended}", where)
    run(statistics.count, at)
    (line,) = run(statistics.read_statistics, SPAN_S, at, at + SPAN_S)
    expected = [0] * BUCKETS
    for seconds in spans:
        expected[bisect_right(BOUNDS, seconds)] += 1
    assert line.runs.counts == expected and line.waits.counts == expected


@pytest.mark.kinds("sqlite")
def test_the_index_of_ends_answers_and_finished_jobs_are_not_read(
    run: Run, database: Database, store: Store
) -> None:
    """However many jobs have ended, a span costs what ended in it."""
    from outlast.store.dialects import SQLITE
    from outlast.store.statements import queries

    sql = queries(SQLITE, database.schema)["ended_between"].sql
    store.ready()
    plan = " ".join(
        str(row[3])
        for row in store.reader.execute(f"EXPLAIN QUERY PLAN {sql}", {"low": 0, "high": 1})  # type: ignore[attr-defined]
    )
    assert "job_ended" in plan and "job_dead_at" in plan and "SCAN j" not in plan


def test_too_many_to_be_kept_apart_are_counted_together() -> None:
    lines = [StatisticsRow(0, f"t{n}", "q", succeeded=n) for n in range(300)]
    kept = bounded(lines)
    assert len(kept) == 201 and (kept[-1].tenant, kept[-1].queue) == OTHERS
    assert sum(line.succeeded for line in kept) == sum(range(300))


def test_who_is_kept_apart_stays_so_when_it_is_counted_again(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first count knows depths and the second does not: the order among them changes. Nobody is
    counted by name and among all others too, in the long span neither."""
    monkeypatch.setattr(statistics, "MAX_KEYS_PER_SPAN", 2)
    monkeypatch.setattr(bounded, "__defaults__", (frozenset(), 2))
    for tenant, ended, left in (("a", 1, 9), ("b", 2, 5), ("c", 3, 0), ("d", 4, 0)):
        put(run, ended + left, tenant=tenant, queue=tenant)
        for claim in take(run, ended, queue=tenant):
            end(run, claim)
    at = now_of(run) // LONG_SPAN_S * LONG_SPAN_S - LONG_SPAN_S
    all_ended_at(database, at + 1.0)
    for there in (run(statistics.depths), None):
        run(statistics.count, at, there)
        found = run(statistics.read_statistics, SPAN_S, at, at + SPAN_S)
        assert {line.key: line.finished for line in found} == {
            OTHERS: 7, ("a", "a"): 1, ("b", "b"): 2
        }  # fmt: skip
    run(statistics.count, at + SPAN_S)  # nothing: a row of its own, under the name of all others
    all_ended_at(database, at + 2 * SPAN_S + 1.0)
    run(statistics.count, at + 2 * SPAN_S)  # and here c and d
    for _ in range(2):
        run(statistics.fold, at)
        long = run(statistics.read_statistics, LONG_SPAN_S, at, at + 1)
        assert len(long) == 3 and sum(line.finished for line in long) == 20


@pytest.mark.kinds("sqlite", "postgres")
async def test_a_pass_that_dies_leaves_the_second_look_to_the_next(
    store: Store, database: Database
) -> None:
    """A span is counted once more though whoever should have done it died before: the last count,
    which says how far we are, comes after it."""
    run = store.run
    some_ended(run)
    end_at = int(run(statistics.newest_span)[1] - SETTLE_S) // SPAN_S * SPAN_S
    late = end_at - SPAN_S - RECOUNT_AFTER_S
    for at in (late, end_at - 2 * SPAN_S):  # all was counted up to here
        run(statistics.count, at)
    all_ended_at(database, late + 1.0)  # committed late
    with database.connect() as connection:
        _refuse(connection, database, late)
    with pytest.raises(OutlastError):
        await StatsCollector(store).once()
    with database.connect() as connection:
        _relent(connection, database)
    await StatsCollector(store).once()
    found = run(statistics.read_statistics, SPAN_S, late, late + SPAN_S)
    assert sum(line.finished for line in found) == 6


@pytest.mark.kinds("sqlite", "postgres")
async def test_after_a_long_pause_what_came_before_it_is_closed(
    store: Store, database: Database
) -> None:
    """Whoever died last had its last minute still to look at, and its long span to fold."""
    run = store.run
    some_ended(run)
    newest = now_of(run) // LONG_SPAN_S * LONG_SPAN_S - 5 * LONG_SPAN_S + 30
    run(statistics.count, newest)
    all_ended_at(database, newest + 1.0)  # committed late
    await StatsCollector(store).once()
    for span, at in ((SPAN_S, newest), (LONG_SPAN_S, newest - 30)):
        found = run(statistics.read_statistics, span, at, at + span)
        assert sum(line.finished for line in found) == 6


def _refuse(connection: Any, database: Database, at: int) -> None:
    """What is written about this span fails, as if whoever writes it had died."""
    name = table(database, "statistic")
    if database.is_sqlite:
        connection.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON {name} WHEN NEW.at = {at}"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    else:
        connection.execute(f"ALTER TABLE {name} ADD CONSTRAINT refuse CHECK (at <> {at}) NOT VALID")


def _relent(connection: Any, database: Database) -> None:
    name = table(database, "statistic")
    drop = (
        "DROP TRIGGER refuse"
        if database.is_sqlite
        else f"ALTER TABLE {name} DROP CONSTRAINT refuse"
    )
    connection.execute(drop)


def test_what_happened_while_nobody_lived_is_left_out() -> None:
    assert spans_due(None, 1000) == [990]
    assert spans_due(970, 1000) == [980, 990]
    assert len(spans_due(0, 100_000)) == 60 and spans_due(990, 1000) == []


def test_percentiles_are_those_of_what_was_noted() -> None:
    spans = DurationHistogram()
    assert spans.percentile(0.5) is None and spans.mean is None
    spans.record(8, 90, 27.0)
    spans.record(12, 10, 80.0)
    assert 0.2 <= (spans.percentile(0.5) or 0) <= 0.5
    assert 5.0 <= (spans.percentile(0.95) or 0) <= 10.0
    assert (
        merge_histograms([spans, spans]).count == 200
        and DurationHistogram.read(spans.stored) == spans
    )
    assert DurationHistogram.read("what somebody wrote").count == 0
