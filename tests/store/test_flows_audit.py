"""What a hand in the tables can do to jobs that wait: the audit counts anew, and heals it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast import Outlast
from outlast.model.flow import chain, group
from outlast.model.job import Job
from outlast.model.wait_check import WaitCheck
from outlast.ops import flow_repair
from outlast.ops.audit import LOWEST_ID
from outlast.ops.cancel_flow import mark_cancelled
from outlast.ops.doctor.orphans import find_orphans
from outlast.ops.flow_repair import link_deferred
from outlast.store import Store
from tests.store.flowing import call, calls, end_all, end_one, lay, left, state
from tests.store.jobs import end, set_all, table, take
from tests.store.test_audit import ONE, audited, moment
from tests.support import Database

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def erase(database: Database, name: str, where: str) -> None:
    with database.connect() as connection:
        connection.execute(f"DELETE FROM {table(database, name)} WHERE {where}")


def all_have_ended(store: Store, database: Database, one: Job, last: Job) -> None:
    end_one(store.run), end_one(store.run)
    set_all(database, "state = 'waiting', waits_for = 1", f"id = '{last.id}'")


def the_count_is_too_high(store: Store, database: Database, one: Job, last: Job) -> None:
    set_all(database, "waits_for = 7", f"id = '{last.id}'")


def the_count_is_too_low(store: Store, database: Database, one: Job, last: Job) -> None:
    set_all(database, "waits_for = 1", f"id = '{last.id}'")


def one_has_died_in_silence(store: Store, database: Database, one: Job, last: Job) -> None:
    set_all(database, f"state = 'dead', finished_at = {moment(database, 0)}", f"id = '{one.id}'")


def one_is_gone(store: Store, database: Database, one: Job, last: Job) -> None:
    erase(database, "job", f"id = '{one.id}'")


def nobody_knows_what_it_comes_after(store: Store, database: Database, one: Job, last: Job) -> None:
    erase(database, "edge", f"follower = '{last.id}'")


Spoil = Callable[[Store, Database, Job, Job], None]
CLASSES: list[tuple[str, Spoil, str, str]] = [
    ("unfired", all_have_ended, "ready", "waiting"),
    ("miscounted", the_count_is_too_high, "waiting", "waiting"),
    ("miscounted", the_count_is_too_low, "waiting", "waiting"),
    ("deaf-parent", one_has_died_in_silence, "dead", "dead"),
    ("deaf-parent", one_is_gone, "dead", "dead"),
    ("deaf-parent", nobody_knows_what_it_comes_after, "dead", "dead"),
]


@pytest.mark.parametrize(
    ("name", "spoil", "then", "after_that"),
    CLASSES,
    ids=[spoil.__name__ for _, spoil, *_ in CLASSES],
)
def test_every_class_is_found_healed_once_and_counted(
    app: Outlast,
    store: Store,
    database: Database,
    name: str,
    spoil: Spoil,
    then: str,
    after_that: str,
) -> None:
    """R070, R089: `unfired`, `miscounted`, `deaf-parent`: one found, one healed, whoever
    waits for that one is told, its hook is made, and the next pass finds nothing."""
    one, _, last, further = lay(
        store.run, chain(group(*calls(2)), call(8, on_dead=call(5, queue="hook")), call(9))
    )
    spoil(store, database, one, last)
    ((ailment, (stray,)),) = store.run(find_orphans)
    assert (ailment.name, stray.id) == (name, last.id)
    assert audited(app, store) == {name: ONE, "audit": ONE}
    assert state(store.run, last, further) == [then, after_that]
    assert len(take(store.run, queue="hook")) == (then == "dead")
    assert audited(app, store) == {}
    end_all(store.run)
    assert state(store.run, further) == ["dead" if then == "dead" else "succeeded"]


def test_who_waits_for_any_end_starts_when_all_are_gone(
    app: Outlast, store: Store, database: Database
) -> None:
    """`unfired`: also without a trace of what it came after."""
    *_, last = lay(store.run, group(*calls(2)).then(call(9), when="finished"))
    erase(database, "edge", "true")
    assert audited(app, store) == {"unfired": ONE, "audit": ONE}
    assert state(store.run, last) == ["ready"]


@pytest.mark.parametrize(
    "number", [2_000, pytest.param(10_000, marks=[pytest.mark.campaign, pytest.mark.timeout(600)])]
)
def test_healthy_flows_are_left_alone(
    app: Outlast, store: Store, database: Database, number: int
) -> None:
    """R086: thousands that wait for one, one that waits for 300, of which 100 have ended."""
    lay(store.run, chain(call(0, delay=60.0), group(*calls(number))))
    lay(store.run, group(*calls(300)).then(call(9)))
    held = take(store.run, 100)
    from outlast.ops.finish import finish
    from tests.store.jobs import ending

    store.run(finish, [ending(one) for one in held])
    everything = f"SELECT * FROM {table(database, 'job')} ORDER BY id"
    before = database.rows(everything)
    assert audited(app, store) == {}
    assert store.run(find_orphans) == []
    assert database.rows(everything) == before


def test_who_came_late_is_counted_by_whoever_works_and_not_by_the_audit(
    app: Outlast, store: Store, database: Database
) -> None:
    """R086: in a caller's transaction a follower is only marked, so it may wait for what has
    happened until it is counted: that is no fault, and nobody is told of one."""
    lay(store.run, call(0))
    (held,) = take(store.run)
    with database.connect() as connection:
        if database.is_sqlite:
            connection.execute("BEGIN IMMEDIATE")
            (last,) = app.enqueue(call(9, after=[held.id]), conn=connection)
            connection.execute("COMMIT")
        else:
            with connection.transaction():
                (last,) = app.enqueue(call(9, after=[held.id]), conn=connection)
    end(store.run, held)
    assert audited(app, store) == {}
    assert store.run(find_orphans) == []
    assert state(store.run, held, last) == ["succeeded", "waiting"]
    counted = store.run(link_deferred)
    assert (counted.healed, counted.queues) == (1, {"default"})
    assert state(store.run, last) == ["ready"]


def test_every_page_is_looked_at(store: Store, database: Database) -> None:
    """R084: a page at a time, from where the last one ended."""
    _, *followers = lay(store.run, chain(call(0), group(*calls(5))))
    set_all(database, "waits_for = 3", "state = 'waiting'")
    after, seen = LOWEST_ID, []
    for _ in range(3):
        found, after = store.run(flow_repair.inconsistent_waits, after, 2)
        seen += found["miscounted"]
    assert (sorted(seen), after) == (sorted(one.id for one in followers), LOWEST_ID)


def test_what_is_right_by_now_is_left_alone(store: Store, database: Database) -> None:
    """R080: between the finding and the repair it was counted, or it ended."""
    one, last = lay(store.run, chain(*calls(2)))
    assert store.run(flow_repair.repair_waits, [one.id, last.id]) == 0
    end_all(store.run)
    assert store.run(flow_repair.repair_waits, [one.id, last.id]) == 0
    assert state(store.run, one, last) == ["succeeded"] * 2


def test_ties_and_flows_of_jobs_that_are_gone_are_cleared_away(
    app: Outlast, store: Store, database: Database
) -> None:
    """R088, I5: and those of jobs that are not gone stay."""
    lay(store.run, group(*calls(3), fail_fast=True).then(call(9)))
    stays = lay(store.run, chain(*calls(2)))
    gone = f"flow <> '{stays[0].flow}'"
    erase(database, "job", gone)
    assert left(database) == {"job": 2, "edge": 4, "flow": 3}
    assert audited(app, store) == {"left-behind": (3, 3, 0, 0), "audit": (3, 3, 0, 0)}
    assert left(database) == {"job": 2, "edge": 1, "flow": 1}
    assert audited(app, store) == {}


def test_a_flow_whose_jobs_all_stood_already_leaves_nothing(
    app: Outlast, store: Store, database: Database
) -> None:
    """I5: it was founded for jobs that belong elsewhere."""
    lay(store.run, call(1, key="k"))
    lay(store.run, group(call(1, key="k"), fail_fast=True))
    assert left(database) == {"job": 1, "edge": 0, "flow": 0}
    assert audited(app, store) == {}


def test_a_cancel_that_nobody_goes_on_with_is_in_sight(store: Store, database: Database) -> None:
    """`half-cancelled`: for whoever asks what is wrong, until somebody has gone on with it."""
    job, *_ = lay(store.run, group(*calls(3)))
    store.run(mark_cancelled, job.flow, "ann", "")
    with database.connect() as connection:
        connection.execute(
            f"UPDATE {table(database, 'flow')} SET cancelled_at = {moment(database, -60)}"
        )
    ((ailment, (stray,)),) = store.run(find_orphans)
    assert (ailment.name, stray.id) == ("half-cancelled", job.flow)


@pytest.mark.parametrize(
    ("wait", "fault"),
    [
        (WaitCheck("a", "succeeded", 2, None, 3, 1, 0), None),
        (WaitCheck("a", "finished", 2, None, 3, 1, 1), None),
        (WaitCheck("a", "finished", 1, 2, 3, 1, 1), None),
        (WaitCheck("a", "succeeded", 2, None, 3, 1, 1), "deaf-parent"),
        (WaitCheck("a", "succeeded", 1, None, 0, 0, 0), "deaf-parent"),
        (WaitCheck("a", "finished", 1, None, 0, 0, 0), "unfired"),
        (WaitCheck("a", "finished", 1, 2, 3, 2, 0), "unfired"),
        (WaitCheck("a", "finished", 3, None, 3, 1, 0), "miscounted"),
        (WaitCheck("a", "finished", 2, 2, 3, 1, 0), "miscounted"),
    ],
)
def test_what_is_wrong_with_a_wait(wait: WaitCheck, fault: str | None) -> None:
    assert wait.fault == fault
