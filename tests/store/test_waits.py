"""Waits and signals in the tables: none is missed, each is taken once, by the claim that holds."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from outlast import ClaimLost, InvalidSignal, JobNotFound, TooLate
from outlast.model.claim import Claim
from outlast.model.wait import KeptWait, Wait, WaitKind
from outlast.ops import audit, job_actions
from outlast.ops.access import Access
from outlast.ops.finish import finish
from outlast.ops.operation import BEGIN, Op, Rows
from outlast.ops.report import history, job
from outlast.ops.retention import prune
from outlast.ops.signals import (
    NewSignal,
    SentSignal,
    send_at_once,
    send_in_transaction,
    send_signal,
)
from outlast.ops.wait_report import signals, waits
from outlast.ops.waits import kept_waits, settle_wait
from outlast.ops.wake_ups import deliver_signals, wake_timed_out
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.crowd import all_at_once
from tests.store.jobs import end, ending, put, put_and_take, table, take
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite", "postgres")

GO = Wait("go", WaitKind.SIGNAL, ("go",))
LATE = Wait("go", WaitKind.SIGNAL, ("go",), 0.0)


def take_all(task: str, name: str, text: str) -> None:
    """Every signal is taken."""


def sent(id: str, value: str = "1", key: str | None = None, name: str = "go") -> Op[SentSignal]:
    return send_signal(NewSignal(id, name, value, key), "somebody", take_all)


def settled(run: Run, claim: Claim, wait: Wait = GO) -> KeptWait | None:
    kept: KeptWait | None = run(settle_wait, claim, wait, run(kept_waits, claim.id).get(wait.name))
    return kept


def states(database: Database) -> dict[str, str]:
    """The state of each job by its id."""
    return dict(database.rows(f"SELECT CAST(id AS text), state FROM {table(database, 'job')}"))


def taken(database: Database) -> list[tuple[Any, ...]]:
    signals = table(database, "signal")
    return database.rows(f"SELECT CAST(value AS text), taken_by FROM {signals} ORDER BY seq")


def test_a_signal_and_the_end_of_an_attempt_never_miss_each_other(
    run: Run, database: Database
) -> None:
    """R246: whichever is first, the job is ready afterwards; a signal of another name leaves it."""
    before, after = put_and_take(run), put_and_take(run)
    assert run(sent, before.id).queue is None
    for claim in (before, after):
        end(run, claim, "waited", wait=GO)
    assert states(database) == {before.id: "ready", after.id: "waiting"}
    run(sent, after.id, name="other")
    assert states(database)[after.id] == "waiting"
    assert run(sent, after.id).queue == "default"
    assert states(database)[after.id] == "ready"


@pytest.mark.parametrize(
    "times", [40, pytest.param(1000, marks=pytest.mark.campaign)], ids=["sample", "full"]
)
def test_signals_race_the_ends_of_attempts(store: Store, database: Database, times: int) -> None:
    """R246: whichever order the database sees, no job waits for a signal that is there."""
    claims = []
    for _ in range(times):
        claims.append(put_and_take(store.run))

    def race(number: int) -> None:
        mine = claims[number // 2 :: 4]
        for claim in mine:
            if number % 2:
                store.run(finish, [ending(claim, "waited", wait=GO)])
            else:
                store.run(sent, claim.id)

    all_at_once(8, race)
    assert set(states(database).values()) == {"ready"}


@pytest.mark.kinds("postgres")
def test_two_waits_of_one_attempt_do_not_take_the_same_signal(
    store: Store, database: Database
) -> None:
    """R246: both have seen it before one of them has the lock."""
    claim = put_and_take(store.run)
    store.run(sent, claim.id)
    waits = [GO, GO._replace(name="go too")]
    found: list[KeptWait | None] = []
    threads = [
        threading.Thread(target=lambda wait=wait: found.append(settled(store.run, claim, wait)))
        for wait in waits
    ]
    with database.connect() as other, other.transaction():
        other.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (claim.id,))
        for thread in threads:
            thread.start()
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        eventually(lambda: database.rows(blocked) == [(2,)])
    for thread in threads:
        thread.join()
    assert sorted(wait is None for wait in found) == [False, True]
    (taker,) = (wait.name for wait in found if wait is not None)
    assert taken(database) == [("1", taker)]


@pytest.mark.parametrize("first", ["signal", "end"])
@pytest.mark.kinds("postgres")
def test_a_signal_that_is_sent_in_one_statement_and_an_end_wait_for_each_other(
    store: Store, database: Database, first: str
) -> None:
    """R246: the second one waits for the lock of the first, whose changes it does not see yet."""
    claim = put_and_take(store.run)
    signal = NewSignal(claim.id, "go", "1")
    transition = ending(claim, "waited", wait=GO)
    both: dict[str, Callable[[], Op[object]]] = {
        "signal": lambda: send_at_once(signal, "somebody", take_all, store.channel),
        "end": lambda: finish([transition]),
    }
    earlier, later = both.pop(first), both.popitem()[1]
    other = threading.Thread(target=store.run, args=(later,))

    def is_blocked() -> bool:
        busy = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return bool(database.rows(f"{busy} AND datname = current_database()"))

    def holding() -> Op[object]:
        yield BEGIN
        done = yield from earlier()
        other.start()
        eventually(is_blocked)
        return done

    store.run(holding)
    other.join()
    assert states(database) == {claim.id: "ready"}
    assert taken(database) == [("1", None)]


@pytest.mark.parametrize("how", ["finished", "released", "claimed again", "another owner"])
def test_a_claim_that_does_not_hold_takes_no_signal_and_does_not_wait(
    run: Run, database: Database, how: str
) -> None:
    """R030, R033, R246: neither takes it nor decides that it timed out."""
    claim = put_and_take(run)
    run(sent, claim.id)
    if how == "another owner":
        claim = claim._replace(worker="a restored backup's")
    else:
        end(run, claim, "succeeded" if how == "finished" else "released")
        if how == "claimed again":
            take(run)
    before = run(job, claim.id).state
    with pytest.raises(ClaimLost):
        settled(run, claim)
    assert len(end(run, claim, "waited", wait=GO).lost) == 1
    assert run(job, claim.id).state == before
    assert taken(database) == [("1", None)]
    assert run(kept_waits, claim.id) == {}


def test_each_signal_is_taken_once_in_the_order_of_arrival(run: Run, database: Database) -> None:
    """R246, R170: a repeat of a lost answer gets the same; the next wait gets the next signal."""
    claim = put_and_take(run)
    for value in ("1", "2"):
        run(sent, claim.id, value)
    for _ in range(2):
        kept = settled(run, claim)
        assert kept is not None and (kept.outcome, kept.result) == ("signal", "1")
    second = settled(run, claim, GO._replace(name="go#2"))
    assert second is not None and second.result == "2"
    assert settled(run, claim, GO._replace(name="go#3")) is None
    assert taken(database) == [("1", "go"), ("2", "go#2")]


def test_a_decision_whose_response_was_lost_is_found_again(run: Run, database: Database) -> None:
    """R170, R246: the repeat gets the signal that this wait has taken; and a handler that did not
    hear of it and waits is started again."""
    claim = put_and_take(run)
    run(sent, claim.id)
    for _ in range(2):  # each knows of no wait
        kept = run(settle_wait, claim, GO, None)
        assert kept is not None and kept.result == "1"
    end(run, claim, "waited", wait=GO)
    assert states(database) == {claim.id: "ready"}


def test_a_repeat_that_looked_before_the_first_try_ended_takes_nothing(
    run: Run, database: Database
) -> None:
    """R170, R246: the connection breaks while the signal is being taken; the repeat has seen it as
    it was before. It gets the same signal, which is on record once."""
    claim = put_and_take(run)
    run(sent, claim.id)

    def first_look() -> Op[Rows]:
        return (yield next(settle_wait(claim, GO, None)))

    def go_on(seen: Rows) -> Op[KeptWait | None]:
        op = settle_wait(claim, GO, None)
        next(op)
        answer: object = seen
        while True:
            try:
                answer = yield op.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    seen = run(first_look)
    assert seen
    for _ in range(2):
        kept = run(go_on, seen)
        assert kept is not None and kept.result == "1"
    assert taken(database) == [("1", "go")]
    assert [event.kind for event in run(history, claim.id)[1]].count("wait") == 1


def test_a_timeout_and_a_signal_are_decided_once(run: Run, database: Database) -> None:
    """R246: the signal that is there wins; the one that comes after the decision does not."""
    first, second = put_and_take(run), put_and_take(run)
    for claim in (first, second):
        end(run, claim, "waited", wait=LATE)
    assert run(wake_timed_out).healed == 2
    assert set(states(database).values()) == {"ready"}
    claims = {claim.id: claim for claim in take(run, 2)}
    run(sent, first.id)
    signalled, late = (settled(run, claims[one.id], LATE) for one in (first, second))
    assert signalled is not None and signalled.outcome == "signal"
    run(sent, second.id)
    again = settled(run, claims[second.id], LATE)
    assert late is not None and again is not None
    assert (late.outcome, again.outcome) == ("timed-out", "timed-out")
    assert taken(database) == [("1", "go"), ("1", None)]


def test_a_wait_keeps_its_timeout_over_other_attempts(run: Run, database: Database) -> None:
    """R246: it counts from the first time that the handler waited."""
    wait = GO._replace(delay=3600.0)
    claim = put_and_take(run)
    end(run, claim, "waited", wait=wait)
    until = run(kept_waits, claim.id)["go"].until
    run(sent, claim.id, name="go")
    (again,) = take(run)
    end(run, again, "waited", wait=wait._replace(due=until))
    assert run(kept_waits, claim.id)["go"].until == pytest.approx(until, abs=0.001)


def test_of_many_waits_few_are_read(run: Run) -> None:
    """A handler that waits again and again decides one wait, and shows the last ones."""
    claim = put_and_take(run)
    for name in ("a", "b", "c"):
        run(sent, claim.id, name=name)
        assert settled(run, claim, Wait(name, WaitKind.SIGNAL, (name,))) is not None
    assert sorted(run(kept_waits, claim.id)) == ["a", "b", "c"]
    assert list(run(kept_waits, claim.id, "b")) == ["b"]
    assert [wait.name for wait in run(waits, claim.id)] == ["a", "b", "c"]
    assert [wait.name for wait in run(waits, claim.id, 2)] == ["b", "c"]


def test_a_signal_of_a_callers_transaction_locks_no_job_and_is_delivered(
    run: Run, database: Database
) -> None:
    """R246: also one that is committed while the attempt ends; one without a job is removed."""
    claim, gone = put_and_take(run), put_and_take(run)
    end(run, claim, "waited", wait=GO)
    for id in (claim.id, gone.id):
        run(send_in_transaction, NewSignal(id, "go", "1"), "somebody", take_all)
    assert states(database)[claim.id] == "waiting"
    database.rows(f"DELETE FROM {table(database, 'job')} WHERE id = '{gone.id}'")
    assert run(deliver_signals).found == 2
    assert run(deliver_signals).found == 0
    assert states(database) == {claim.id: "ready"}
    assert taken(database) == [("1", None)]


def refuse_all(task: str, name: str, text: str) -> None:
    raise InvalidSignal(name, [])


def test_a_signal_is_for_jobs_in_reach_that_have_not_ended(run: Run, database: Database) -> None:
    """R246: other tenants' jobs do not exist for the sender. What is refused leaves nothing."""
    claim = put_and_take(run)
    signal = NewSignal(claim.id, "go", "1")
    with pytest.raises(JobNotFound):
        run(send_signal, signal, "somebody", take_all, Access("another"))
    with pytest.raises(InvalidSignal):
        run(send_signal, signal, "somebody", refuse_all)
    end(run, claim)
    with pytest.raises(TooLate):
        run(send_signal, signal, "somebody", take_all)
    assert taken(database) == []


def test_a_cancel_that_was_asked_for_ends_a_job_that_would_wait(
    run: Run, database: Database
) -> None:
    """R115: and a waiting one ends at once."""
    asked, waits = put_and_take(run), put_and_take(run)
    run(job_actions.cancel, asked.id, "somebody", "")
    for claim in (asked, waits):
        end(run, claim, "waited", wait=GO)
    assert states(database) == {asked.id: "cancelled", waits.id: "waiting"}
    assert run(job_actions.cancel, waits.id, "somebody", "").state == "cancelled"
    assert run(deliver_signals).found == 0


@pytest.mark.parametrize(
    "times", [40, pytest.param(1000, marks=pytest.mark.campaign)], ids=["sample", "full"]
)
def test_ends_of_jobs_race_those_who_begin_to_wait_for_them(
    store: Store, database: Database, times: int
) -> None:
    """R246: no job waits for one that has ended."""
    pairs = [(put_and_take(store.run), put_and_take(store.run)) for _ in range(times)]

    def race(number: int) -> None:
        for child, parent in pairs[number // 2 :: 4]:
            if number % 2:
                wait = Wait("child", WaitKind.JOB, (child.id,), awaits=child.id)
                store.run(finish, [ending(parent, "waited", wait=wait)])
            else:
                store.run(finish, [ending(child)])

    all_at_once(8, race)
    found = states(database)
    assert {found[child.id] for child, _ in pairs} == {"succeeded"}
    assert {found[parent.id] for _, parent in pairs} == {"ready"}


def test_the_end_of_a_prerequisite_does_not_concern_a_handler_that_waits(
    run: Run, database: Database
) -> None:
    """R246: of a quorum, the last one fails while the follower waits for a signal."""
    first, last = put(run, 2)
    (follower,) = put(run, after=(first.id, last.id), waits_for=1, quorum=1, needs="succeeded")
    claims = {claim.id: claim for claim in take(run, 2)}
    end(run, claims[first.id])
    (claim,) = take(run)
    assert claim.id == follower.id
    end(run, claim, "waited", wait=GO)
    end(run, claims[last.id], "permanent")
    assert states(database)[follower.id] == "waiting"


def test_the_audit_finds_and_starts_a_job_whose_wake_up_was_missed(
    run: Run, database: Database
) -> None:
    """R246, `unwoken`: a signal, an ended job, or a time-out that has been there for a while."""
    (check,) = [c for c in audit.checks({}, 60.0, 1.0, lambda *_: None) if c.name == "unwoken"]  # type: ignore[arg-type, return-value]
    child = put_and_take(run)
    claims = [put_and_take(run) for _ in range(4)]
    waits = [GO, Wait("child", WaitKind.JOB, (child.id,), awaits=child.id), LATE, GO]
    for claim, wait in zip(claims, waits, strict=True):
        end(run, claim, "waited", wait=wait)
    run(sent, claims[0].id)
    end(run, child)
    early = "at = at - 100" if database.is_sqlite else "at = at - interval '100 s'"
    database.rows(f"UPDATE {table(database, 'signal')} SET {early}")
    past = "100" if database.is_sqlite else "interval '100 s'"
    database.rows(f"UPDATE {table(database, 'wait')} SET since = since - {past}")
    jobs = table(database, "job")
    database.rows(f"UPDATE {jobs} SET finished_at = finished_at - {past} WHERE id = '{child.id}'")
    for claim, wait in zip(claims[:2], waits, strict=False):  # as if nobody had woken them
        database.rows(
            f"UPDATE {jobs} SET state = 'waiting', wait_name = '{wait.name}'"
            f" WHERE id = '{claim.id}'"
        )
    database.rows(f"UPDATE {jobs} SET wait_until = wait_until - {past}")
    found = [orphan.id for orphan in run(check.find)]
    assert sorted(found) == sorted(claim.id for claim in claims[:3])
    assert run(check.repair, found) == 3
    assert [states(database)[claim.id] for claim in claims] == ["ready"] * 3 + ["waiting"]


def test_an_awaited_job_is_kept_until_its_waiter_has_its_result(run: Run) -> None:
    """R246: however short the retention, and however late the waiter goes on."""
    child, parent = put_and_take(run), put_and_take(run)
    wait = Wait("child", WaitKind.JOB, (child.id,), awaits=child.id)
    end(run, parent, "waited", wait=wait)
    end(run, child, result="7")
    assert run(prune, "succeeded", 0.0, 10) == 0
    (again,) = take(run)
    kept = settled(run, again, wait)
    assert kept is not None and (kept.outcome, kept.result) == ("ended", "7")
    assert run(prune, "succeeded", 0.0, 10) == 1


def test_a_signal_without_a_key_is_kept_once_after_a_lost_response(
    run: Run, database: Database
) -> None:
    """R170, R246: the store restarts the operation; two signals of a sender stay two."""
    claim = put_and_take(run)
    signal = NewSignal(claim.id, "go", "1")
    for _ in range(2):
        assert run(send_signal, signal, "somebody", take_all).new
    run(sent, claim.id)
    assert taken(database) == [("1", None), ("1", None)]
    assert [one.key for one in run(signals, claim.id)] == [None, None]


@pytest.mark.campaign
@pytest.mark.quiet
def test_waiting_jobs_do_not_slow_the_claim(store: Store, database: Database) -> None:
    """R246: with 100,000 jobs waiting for a signal, a claim takes at most 1.1 times as long."""
    rounds, batch = 40, 50

    def claims() -> float:
        """The median of many claims, each of a full batch."""
        times = []
        for _ in range(rounds):
            put(store.run, batch)
            began = time.perf_counter()
            taken = take(store.run, batch)
            times.append(time.perf_counter() - began)
            store.run(finish, [ending(claim) for claim in taken])
        return statistics.median(times)

    claims()
    before = claims()
    for _ in range(100):
        put(store.run, 1000)
        waiting = take(store.run, 1000, lease=600.0)
        late = GO._replace(delay=3600.0)
        store.run(finish, [ending(claim, "waited", wait=late) for claim in waiting])
    if not database.is_sqlite:
        database.rows(f"VACUUM ANALYZE {table(database, 'job')}")
    claims()
    after = claims()
    assert after <= 1.1 * before + 0.0005, f"{before * 1000:.2f} ms, then {after * 1000:.2f} ms"
