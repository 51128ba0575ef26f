"""Signals: values sent to jobs, kept until a wait takes them.

With a connection of ours, the signal and the wake-up of its job are one transaction, which locks
the job's row first: an attempt that is ending sees the signal, or is seen to wait. The transaction
of a caller may stay open for long and locks no job: its signal is marked, and any worker wakes the
job after the commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from ..model.errors import JobNotFound, KeyConflict, TooLate
from ..model.ids import new_job_id
from ..model.lifecycle import STATES
from .access import ALL_JOBS, Access
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .report import job as one_job

SEND_KEY_PREFIX = "~"  # of keys that senders have not chosen

CheckSignal = Callable[[str, str, str], None]  # task, name and JSON text; raises if it is refused


def chosen_key(stored: str | None) -> str | None:
    """The key that a sender has chosen."""
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

    @property
    def woke(self) -> bool:
        return self.queue is not None


def send_signal(
    signal: NewSignal, by: str, check: CheckSignal, reach: Access = ALL_JOBS
) -> Op[SentSignal]:
    """Keep a signal, and start its job if that waits for it. `check` refuses what the job's task
    does not take."""
    yield BEGIN
    rows: Rows = yield Statement("hold_recipient", {"id": signal.job, **reach.params})
    if not rows:
        rows = yield from _archived_recipient(signal.job, reach)
    return (yield from keep_and_wake(signal, by, check, rows))


def keep_and_wake(
    signal: NewSignal, by: str, check: CheckSignal, recipient: Rows
) -> Op[SentSignal]:
    """Keep a signal for a job whose row is locked, and start the job if it waits for it."""
    new = yield from _keep(signal, by, check, recipient, unseen=False)
    woken: Rows = []
    if new:
        woken = yield Statement("wake_signalled", {"ids": json.dumps([signal.job])})
    return SentSignal(signal.job, signal.name, new, woken[0][1] if woken else None)


def send_in_transaction(signal: NewSignal, by: str, check: CheckSignal) -> Op[SentSignal]:
    """Keep a signal in a caller's own transaction: the job's row is not locked."""
    rows: Rows = yield Statement("read_recipient", {"id": signal.job, **ALL_JOBS.params})
    if not rows:
        rows = yield from _archived_recipient(signal.job, ALL_JOBS)
    new = yield from _keep(signal, by, check, rows, unseen=True)
    return SentSignal(signal.job, signal.name, new)


def _archived_recipient(id: str, reach: Access) -> Op[Rows]:
    """State and task of a job that has ended and is in the archive."""
    job = yield from one_job(id, reach)
    return [(job.state, job.task)]


def _keep(
    signal: NewSignal, by: str, check: CheckSignal, recipient: Rows, *, unseen: bool
) -> Op[bool]:
    if not recipient:
        raise JobNotFound(job=signal.job)
    state, task = recipient[0]
    check(task, signal.name, signal.value)
    if state in STATES and STATES[state].final:
        if (yield from _sent_before(signal)):
            return False
        text = f"Job {signal.job} is already {state}: it takes no signal {signal.name!r} any more."
        raise TooLate(text, job=signal.job, state=state)
    given = {"job": signal.job, "name": signal.name, "value": signal.value}
    kept = {**given, "key": signal.stored_key, "by": by, "unseen": unseen}
    rows: Rows = yield Statement("insert_signal", kept)
    if not rows:
        yield from _sent_before(signal)
        return signal.key is None
    yield from record_action("signal", [signal.job], {"by": by, "signal": signal.name})
    return True


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
