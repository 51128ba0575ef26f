"""Signals: values sent to jobs, stored until a wait takes them.

On our own connection, the signal and the wake-up of its job are one transaction, which locks the
job's row first: an attempt that is ending sees the signal, or its wait is seen. The transaction of
a caller may stay open for long and locks no job: its signal is marked, and any worker wakes the job
after the commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from ..model.errors import JobNotFound, KeyConflict, TooLate
from ..model.ids import new_job_id
from ..model.lifecycle import STATES
from .access import ALL_JOBS, Access
from .job_actions import action_statement
from .operation import BEGIN, CommitPipeline, Op, Pipeline, Rows, Statement
from .report import job as one_job

SEND_KEY_PREFIX = "~"  # of generated keys

CheckSignal = Callable[[str, str, str], None]  # task, name and JSON text; raises if it is refused


def chosen_key(stored: str | None) -> str | None:
    """The key that the sender chose, if it did."""
    return None if stored is None or stored.startswith(SEND_KEY_PREFIX) else stored


@dataclass(frozen=True, slots=True)
class NewSignal:
    """A signal to be sent; its value is JSON text."""

    job: str
    name: str
    value: str
    key: str | None = None  # of several with one key, the first is kept
    # Without a key: a repeat after a lost response is the same signal.
    send_key: str = field(default_factory=lambda: SEND_KEY_PREFIX + new_job_id())

    @property
    def stored_key(self) -> str:
        return self.key or self.send_key


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal that was accepted."""

    job: str
    name: str
    new: bool  # False: its key was used before
    queue: str | None = None  # of the job that it woke
    notified: bool = False  # whether workers were notified of that job

    @property
    def woke(self) -> bool:
        return self.queue is not None


def send_signal(
    signal: NewSignal,
    by: str,
    check: CheckSignal,
    reach: Access = ALL_JOBS,
) -> Op[SentSignal]:
    """Store a signal, and start its job if it waits for one. `check` refuses values that the job's
    task does not accept: the transaction is rolled back."""
    yield BEGIN
    hold = Statement("hold_recipient", {"id": signal.job, **reach.params})
    recipient, kept = yield Pipeline((hold, _insert(signal, by)))
    if not recipient:
        recipient = yield from _archived_recipient(signal.job, reach)
    return (yield from _wake(signal, by, check, recipient, kept))


def send_at_once(signal: NewSignal, by: str, check: CheckSignal, channel: str) -> Op[SentSignal]:
    """The same, with a notification and in one statement, for a signal that `check` accepts for any
    task. If it is not stored this way, it is sent again by `send_signal`."""
    data = {"data": json.dumps(_facts(signal, by)), "channel": channel}
    kept: Rows = yield Statement("send_signal", {**_columns(signal, by), **data})
    if not kept:
        return (yield from send_signal(signal, by, check))
    return SentSignal(signal.job, signal.name, new=True, queue=kept[0][0], notified=True)


def keep_and_wake(
    signal: NewSignal, by: str, check: CheckSignal, recipient: Rows
) -> Op[SentSignal]:
    """Store a signal for a job whose row is locked, and start the job if it waits for it. A refusal
    must roll back the transaction."""
    kept: Rows = yield _insert(signal, by)
    return (yield from _wake(signal, by, check, recipient, kept))


def _wake(
    signal: NewSignal,
    by: str,
    check: CheckSignal,
    recipient: Rows,
    kept: Rows,
) -> Op[SentSignal]:
    """Start the job of a stored signal; ends the operation."""
    ended = _ended_state(signal, check, recipient)
    known = not kept and (yield from _sent_before(signal))
    if ended and not known:
        raise _too_late(signal, ended)
    new = bool(kept) or (signal.key is None and not ended)
    if not new:
        return SentSignal(signal.job, signal.name, new=False)
    records = [_record(signal, by)] if kept else []
    wake = Statement("wake_signalled", {"ids": json.dumps([signal.job])})
    *_, woken = yield CommitPipeline((*records, wake))
    return SentSignal(signal.job, signal.name, new, woken[0][1] if woken else None)


def send_in_transaction(signal: NewSignal, by: str, check: CheckSignal) -> Op[SentSignal]:
    """Store a signal in a caller's own transaction: the job's row is not locked, and a refusal must
    leave nothing behind."""
    rows: Rows = yield Statement("read_recipient", {"id": signal.job, **ALL_JOBS.params})
    if not rows:
        rows = yield from _archived_recipient(signal.job, ALL_JOBS)
    if ended := _ended_state(signal, check, rows):
        if not (yield from _sent_before(signal)):
            raise _too_late(signal, ended)
        return SentSignal(signal.job, signal.name, new=False)
    kept: Rows = yield _insert(signal, by, unseen=True)
    if kept:
        yield _record(signal, by)
    else:
        yield from _sent_before(signal)
    return SentSignal(signal.job, signal.name, bool(kept) or signal.key is None)


def _archived_recipient(id: str, reach: Access) -> Op[Rows]:
    """State, task and queue of an archived job."""
    job = yield from one_job(id, reach)
    return [(job.state, job.task, job.queue)]


def _ended_state(signal: NewSignal, check: CheckSignal, recipient: Rows) -> str:
    """Check a signal against its job; the final state of a job that has ended, or ""."""
    if not recipient:
        raise JobNotFound(job=signal.job)
    state, task, _ = recipient[0]
    check(task, signal.name, signal.value)
    return str(state) if state in STATES and STATES[state].final else ""


def _too_late(signal: NewSignal, state: str) -> TooLate:
    text = f"Job {signal.job} is already {state}: it takes no signal {signal.name!r} any more."
    return TooLate(text, job=signal.job, state=state)


def _insert(signal: NewSignal, by: str, *, unseen: bool = False) -> Statement:
    return Statement("insert_signal", {**_columns(signal, by), "unseen": unseen})


def _columns(signal: NewSignal, by: str) -> dict[str, object]:
    given = {"job": signal.job, "name": signal.name, "value": signal.value}
    return {**given, "key": signal.stored_key, "by": by}


def _record(signal: NewSignal, by: str) -> Statement:
    return action_statement("signal", [signal.job], _facts(signal, by))


def _facts(signal: NewSignal, by: str) -> dict[str, str]:
    return {"by": by, "signal": signal.name}


def _sent_before(signal: NewSignal) -> Op[bool]:
    """Whether a signal of this key exists; one of another value is a mistake of the sender."""
    given = {"job": signal.job, "name": signal.name, "key": signal.stored_key}
    rows: Rows = yield Statement("signal_of_key", given)
    if rows and json.loads(rows[0][0]) != json.loads(signal.value):
        raise KeyConflict(
            f"The key {signal.key!r} was used for a signal {signal.name!r} of job {signal.job} with"
            " another value: use another key, or the same value.",
            key=signal.key, queue=None, job=signal.job,
        )  # fmt: skip
    return bool(rows)
