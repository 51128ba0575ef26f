"""Circuit breakers in the tables: opened once, probed by one, closed by whoever may."""

from __future__ import annotations

import json
from dataclasses import replace

from outlast.model.breaker import Circuit, OpenBreaker
from outlast.model.claim import Claim
from outlast.model.outcome import release
from outlast.ops.breaker_report import breakers
from outlast.ops.breakers import (
    close_breaker,
    close_without_jobs,
    closed_by_probe,
    open_breaker,
    probe_failed,
    take_probe,
)
from outlast.ops.claim import poll, poll_queues
from outlast.ops.events import assign_positions, page
from outlast.ops.explain import explain
from outlast.ops.finish import finish, lookup_finished
from outlast.ops.job_actions import cancel
from outlast.ops.reclaim import reclaim
from outlast.ops.report import history, job
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.crowd import all_at_once
from tests.store.jobs import put, take
from tests.support import Database
from tests.worker.working import sql

DOWN = OpenBreaker(Circuit("default", "work"), "first", "ConnectionError")


def opened(run: Run, wait: float = 0.0, which: OpenBreaker = DOWN) -> OpenBreaker:
    standing, _ = run(open_breaker, which, "refused", "w", wait)
    assert standing is not None
    return standing


def due(run: Run) -> list[bool]:
    return [one.due for one in run(poll).breakers]


def test_of_two_that_open_it_one_does(run: Run) -> None:
    """R120, R223: sent again, it is the same opening; it is on record once."""
    first, ours = run(open_breaker, DOWN, "refused", "one", 5.0)
    assert ours and first.opening == "first" and not first.due
    _, again = run(open_breaker, DOWN, "refused", "one", 5.0)
    assert again
    standing, theirs = run(open_breaker, replace(DOWN, opening="second"), "x", "two", 5.0)
    assert not theirs and standing.opening == "first"
    (shown,) = run(breakers)
    assert (shown.reason, shown.opened_by, shown.probing) == (
        "ConnectionError: refused", "one", False,
    )  # fmt: skip
    assert 3.0 < shown.next_probe <= 5.0


def test_a_probe_is_one_claim_and_free_again_with_it(run: Run, store: Store) -> None:
    """R223: while it runs nobody else probes; when its owner is lost, somebody does at once."""
    put(run, 3)
    here = opened(run)
    assert due(run) == [True]
    (probe,) = run(take_probe, here, "prober", -1.0, 0.0)
    assert due(run) == [False]
    following = replace(here, probes=1)
    assert run(take_probe, following, "rival", 60.0, 0.0) == []
    run(reclaim)
    assert due(run) == [True], "its lease ran out, and it was taken back"
    (second,) = run(take_probe, following, "rival", 60.0, 0.0)
    assert run(probe_failed, here, probe.claim_key, "late", 60.0) is False
    assert run(probe_failed, here, second.claim_key, "still away", 60.0) is True
    run(finish, [release(second)])
    (shown,) = run(breakers)
    assert shown.probes == 2 and shown.message == "still away" and shown.next_probe > 50


def moved(database: Database, column: str, seconds: float) -> str:
    """A column's time, so much later: as if the clock had stepped back."""
    later = str(seconds) if database.is_sqlite else f"make_interval(secs => {seconds})"
    return f"{column} = {column} + {later}"


def test_a_probe_that_hangs_is_not_waited_for(run: Run, database: Database) -> None:
    """R223: else one handler that waits for ever would hold back all other jobs as long."""
    put(run, 2)
    here = opened(run)
    (first,) = run(take_probe, here, "w", 3600.0, 0.0)
    assert due(run) == [False]
    sql(
        database, f"UPDATE {{job}} SET {moved(database, 'started_at', -61)} WHERE state = 'running'"
    )
    assert due(run) == [True]
    (second,) = run(take_probe, replace(here, probes=1), "w", 3600.0, 0.0)
    assert second.id != first.id and due(run) == [False]


def test_a_clock_that_stepped_back_keeps_no_breaker_open(run: Run, database: Database) -> None:
    """R213, R223: it is probed at once, and once; the probe began after the opening."""
    put(run, 2)
    opened(run, 30.0)
    step = f"{moved(database, 'opened_at', 3600)}, {moved(database, 'probe_at', 3600)}"
    sql(database, f"UPDATE {{breaker}} SET {step}")
    (standing,) = run(poll).breakers
    assert standing.due
    (probe,) = run(take_probe, standing, "w", 60.0, 30.0)
    (standing,) = run(poll).breakers
    assert standing.precedes(probe.started_at) and not standing.due
    run(finish, [release(probe)])
    assert due(run) == [False], "the next one waits"


def test_of_many_that_want_to_probe_one_does(store: Store, database: Database) -> None:
    """R223: all at the same moment."""
    put(store.run, 20)
    here = opened(store.run)

    def want(n: int) -> list[Claim]:
        return store.run(take_probe, here, f"w{n}", 60.0, 60.0)

    got = all_at_once(8, want)
    assert sorted(map(len, got)) == [0] * 7 + [1]


def test_without_a_job_there_is_no_probe(run: Run) -> None:
    """R223: nothing is spent of the breaker's patience."""
    here = opened(run)
    assert run(take_probe, here, "w", 60.0, 0.0) == []
    assert [(one.probes, one.due) for one in run(poll).breakers] == [(0, True)]
    assert [one.due for one in run(poll_queues, ["other"]).breakers] == [True]


def closings(database: Database) -> list[str]:
    """The reasons that are on record."""
    rows = sql(database, "SELECT data FROM {event} WHERE kind = 'breaker-closed' ORDER BY seq")
    told = [json.loads(data) if isinstance(data, str) else data for (data,) in rows]
    return [one["reason"] for one in told]


def test_a_breaker_whose_task_has_no_job_left_is_closed(run: Run, database: Database) -> None:
    """R223: on record, once its probe is due; not while a job could still be the probe."""
    here = opened(run, 60.0)
    assert run(close_without_jobs, here, "w") == [], "no probe is due"
    run(close_breaker, "default", "work", None, "me")
    here = opened(run)
    for options in ({}, {"delay": 30.0}):
        put(run, 1, **options)
        assert run(close_without_jobs, here, "w") == []
        sql(database, "DELETE FROM {job}")
    put(run, 1)
    take(run, 1)
    assert run(close_without_jobs, here, "w") == [], "one runs"
    sql(database, "DELETE FROM {job}")
    put(run, 1, task="other")
    put(run, 1, queue="other")
    put(run, 1, delay=86_400.0)
    assert run(close_without_jobs, replace(here, opening="another"), "w") == []
    ((task, seconds),) = run(close_without_jobs, here, "w")
    assert task == "work" and 0 <= seconds < 60 and run(breakers) == []
    assert closings(database) == ["by hand", "no job left to probe with"]


def test_it_is_known_whether_a_probe_closed_it(run: Run, database: Database) -> None:
    """R054: the latest close counts; without one, none is known."""
    circuit = DOWN.circuit
    assert run(closed_by_probe, circuit) is False
    opened(run)
    run(close_breaker, *circuit, "first", "w")
    assert run(closed_by_probe, circuit) is True
    assert run(closed_by_probe, Circuit("default", "other")) is False
    opened(run)
    run(close_breaker, *circuit, None, "me")
    assert run(closed_by_probe, circuit) is False
    assert closings(database) == ["a probe succeeded", "by hand"]


def test_a_job_that_is_held_back_leaves_no_trace(run: Run, database: Database) -> None:
    """R054, R223: its attempt is given back, nothing is recorded; a lost answer does no harm."""
    put(run, 2)
    claims = take(run, 2)
    back = [release(claim)._replace(quiet=True) for claim in claims]
    run(cancel, claims[1].id, "me", "")
    finished = run(finish, back)
    assert {str(state) for _, state in finished.accepted} == {"ready", "cancelled"}
    held = run(job, claims[0].id)
    assert (held.state, held.attempt, held.failures) == ("ready", 0, 0)
    assert run(history, claims[0].id) == ([], [])
    assert len(run(history, claims[1].id)[0]) == 1, "how it was cancelled is on record"
    assert [t.claim.id for t, _ in run(lookup_finished, back[:1]).accepted] == [claims[0].id]
    take(run, 1)
    assert run(finish, back[:1]).lost == [], "sent again when another has it: nothing is undone"
    assert run(job, claims[0].id).state == "running"


def test_a_close_by_hand_is_for_a_task_or_for_the_queue(run: Run, database: Database) -> None:
    """R120: and on record; what a late probe closes is its own opening alone."""
    for queue, task in (("a", "x"), ("a", "y"), ("b", "x")):
        opened(run, which=OpenBreaker(Circuit(queue, task), f"{queue}{task}", "E"))
    assert run(close_breaker, "a", "x", "another opening", "w") == []
    assert [task for task, _ in run(close_breaker, "a", "x", None, "me")] == ["x"]
    assert [task for task, _ in run(close_breaker, "a", None, None, "me")] == ["y"]
    assert run(close_breaker, "a", None, None, "me") == []
    assert [one.queue for one in run(breakers)] == ["b"]
    kinds = sql(database, "SELECT kind FROM {event} ORDER BY seq")
    assert [kind for (kind,) in kinds] == ["breaker-opened"] * 3 + ["breaker-closed"] * 2
    run(assign_positions)
    told = [(one.queue, one.task) for one in run(page, 0, None, 10).events]
    assert told == [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x"), ("a", "y")]


def test_a_job_that_is_scheduled_tells_of_the_breaker(run: Run) -> None:
    """R201: it would not run when its time comes."""
    (soon,) = put(run, 1, delay=30.0)
    opened(run, 60.0)
    told = run(explain, soon.id, lambda workers: [])
    assert told.startswith("It is scheduled to run in ")
    assert "circuit breaker of its task in its queue has been open for" in told
