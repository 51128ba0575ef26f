"""Durable waits: begin when an attempt ends, are woken by signals, ends of jobs and timers, and are
decided once, under the claim of the next attempt.

A wake-up only makes the job ready: the next attempt checks again and decides. To miss none, the end
of an attempt and its check for signals are one transaction, which has locked the job's row; so are
a signal and its wake-up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from ..model.claim import Claim
from ..model.errors import ClaimLost, JobNotFound
from ..model.lifecycle import STATES, State
from ..model.outcome import Transition
from ..model.wait import KeptWait, Wait, WaitKind, WaitOutcome, describe_wait
from .archive import find
from .operation import BEGIN, Op, Pipeline, Rows, Statement

# The end of an attempt


def hold_awaited(transitions: Sequence[Transition]) -> Op[None]:
    """Lock the awaited jobs before the rows of the waiting ones: their finishers would otherwise
    miss the new wait, or lock the rows in the opposite order."""
    awaited = sorted({t.wait.awaits for t in transitions if t.wait and t.wait.awaits})
    if awaited:
        yield Statement("hold_prerequisites", {"ids": json.dumps(awaited)})


def begin_waits(transitions: Sequence[Transition]) -> Op[set[str]]:
    """Store the waits of attempts that ended in this transaction; returns the queues of jobs that
    are ready again because their wait is over already."""
    waits = [(t.claim, t.wait) for t in transitions if t.wait is not None]
    yield Statement("begin_waits", rows=[_row(claim, wait) for claim, wait in waits])
    woken: Rows = []
    if watching := sorted(claim.id for claim, wait in waits if wait.kind is not WaitKind.SLEEP):
        woken += yield Statement("wake_signalled", {"ids": json.dumps(watching)})
    queues = {queue for _, queue in woken}
    if awaited := {wait.awaits for _, wait in waits if wait.awaits is not None}:
        ids = json.dumps(sorted(awaited))
        live: Rows = yield Statement("mark_awaited", {"ids": ids})
        queues |= yield from wake_waiters(sorted(awaited.difference(id for (id,) in live)))
    return queues


def _row(claim: Claim, wait: Wait) -> dict[str, object]:
    return {
        "job": claim.id,
        "name": wait.name,
        "kind": wait.kind,
        "subjects": json.dumps(wait.subjects),
        "awaits": wait.awaits,
        "forms": wait.forms,
        "fence": claim.fence,
    }


# Wake-ups


def wake_waiters(ended: Sequence[str]) -> Op[set[str]]:
    """Start the jobs whose handlers wait for these, which have ended; returns their queues."""
    if not ended:
        return set()
    woken: Rows = yield Statement("wake_waiters", {"ids": json.dumps(sorted(ended))})
    return {queue for _, queue in woken}


# The next attempt


def kept_waits(job: str, name: str | None = None) -> Op[dict[str, KeptWait]]:
    """The waits of a job that began in earlier attempts, or the one of this name; by name."""
    rows: Rows = yield Statement("kept_waits", {"job": job, "name": name})
    return {row[0]: KeptWait(*row) for row in rows}


def settle_wait(claim: Claim, wait: Wait, kept: KeptWait | None) -> Op[KeptWait | None]:
    """Decide a wait if a signal is there, the awaited job has ended, or it has timed out. The
    decision is stored, and a repeated call returns it. None: the wait continues."""
    if wait.kind is WaitKind.SIGNAL:
        return (yield from settle_signal(claim, wait, kept))
    return None if (yield from _look(wait, kept)) is None else (yield from _decide(claim, wait))


def settle_signal(claim: Claim, wait: Wait, kept: KeptWait | None) -> Op[KeptWait | None]:
    """The same for a wait for signals. A wait that began in an earlier attempt was most likely
    woken by a signal, which is taken without a check."""
    if kept is not None or (yield _first_signal(claim, wait)):
        *_, ended = yield Pipeline(_take_statements(claim, wait, kept))
        if ended:
            return _ended(wait, kept, WaitEnd(WaitOutcome.SIGNAL, *ended[0]))
        held: Rows = yield Statement("hold_claim", _guard(claim))
        if not held:
            raise ClaimLost(job=claim.id)
        kept = (yield from kept_waits(claim.id, wait.name)).get(wait.name)
        if kept is not None and kept.over:
            return kept
    return (yield from _decide(claim, wait)) if _is_due(wait, kept) else None


def _decide(claim: Claim, wait: Wait) -> Op[KeptWait | None]:
    """Check again and decide, under a lock that blocks senders. An existing signal wins over a
    time-out that is not decided yet."""
    yield BEGIN
    held: Rows = yield Statement("hold_claim", _guard(claim))
    if not held:
        raise ClaimLost(job=claim.id)
    kept = (yield from kept_waits(claim.id, wait.name)).get(wait.name)
    if kept is not None and kept.over:
        return kept
    if wait.kind is WaitKind.SIGNAL:
        *_, ended = yield Pipeline(_take_statements(claim, wait, kept))
        if ended:
            return _ended(wait, kept, WaitEnd(WaitOutcome.SIGNAL, *ended[0]))
    end = yield from _look(wait, kept)
    if end is None:
        return None
    yield Pipeline(_end_statements(claim, wait, end, 0.0 if kept is None else kept.age))
    return _ended(wait, kept, end)


class WaitEnd(NamedTuple):
    """The event that ends a wait."""

    outcome: WaitOutcome
    source: str | None = None
    result: str | None = None


def _ended(wait: Wait, kept: KeptWait | None, end: WaitEnd) -> KeptWait:
    begun = (0.0, None) if kept is None else (kept.since, kept.until)
    return KeptWait(wait.name, wait.kind, json.dumps(wait.subjects), *begun, *end)


def _guard(claim: Claim) -> dict[str, object]:
    return {"job": claim.id, "offered_by": None, **claim.guard}


def _first_signal(claim: Claim, wait: Wait) -> Statement:
    given = {"job": claim.id, "name": wait.name, "names": json.dumps(wait.subjects)}
    return Statement("first_signal", given)


def _take_statements(claim: Claim, wait: Wait, kept: KeptWait | None) -> list[Statement]:
    """Take the first signal that is there, under a locked claim. Either all of the last three have
    an effect, or none; the last one returns the taken signal."""
    guard = _guard(claim)
    wanted = {**guard, "name": wait.name, "names": json.dumps(wait.subjects)}
    facts = _facts(wait, WaitOutcome.SIGNAL, 0.0 if kept is None else kept.age)
    return [
        Statement("hold_claim", guard),
        Statement("record_taken", {**wanted, "data": json.dumps(facts)}),
        Statement("take_signal", wanted),
        Statement("end_by_signal", wanted),
    ]


def _end_statements(claim: Claim, wait: Wait, end: WaitEnd, spent: float) -> list[Statement]:
    facts = _facts(wait, end.outcome, spent)
    event = {"job": claim.id, "kind": "wait", "data": json.dumps(facts)}
    kept = {name: value for name, value in _row(claim, wait).items() if name not in _BEGINNING}
    return [
        Statement("end_wait", kept | end._asdict()),
        Statement("record_action", rows=[event]),
    ]


def _facts(wait: Wait, outcome: WaitOutcome, spent: float) -> dict[str, object]:
    return {
        "wait": wait.name,
        "outcome": outcome,
        "seconds": round(spent, 3),
        "text": describe_wait(wait.kind, wait.subjects, spent, outcome),
    }


_BEGINNING = ("awaits", "forms")  # columns of a wait that has not ended


def _look(wait: Wait, kept: KeptWait | None) -> Op[WaitEnd | None]:
    """The event that ends a wait now, other than a signal."""
    if wait.kind is WaitKind.JOB:
        rows = yield from _awaited_job(wait.subjects[0])
        if not rows:
            raise JobNotFound(job=wait.subjects[0])
        state, result, error = rows[0]
        if state in STATES and STATES[state].final:
            kept_text = result if state == State.SUCCEEDED else error
            return WaitEnd(WaitOutcome.ENDED, state, kept_text)
    elif wait.kind is WaitKind.FLOW and (yield from live_job_of_flow(wait.subjects[0])) is None:
        counted: Rows = yield Statement("flow_counts", {"id": wait.subjects[0]})
        return WaitEnd(WaitOutcome.ENDED, None, json.dumps(dict(counted)))
    return WaitEnd(WaitOutcome.TIMED_OUT) if _is_due(wait, kept) else None


def _is_due(wait: Wait, kept: KeptWait | None) -> bool:
    return wait.delay == 0 if kept is None else kept.is_due


def _awaited_job(id: str) -> Op[Rows]:
    """State, result and error of a job, or of an archived one."""
    rows = yield from find(Statement("awaited_job", {"id": id}), "past_ended", [id])
    return [row[1:4] for row in rows]


def live_job_of_flow(id: str) -> Op[str | None]:
    """The newest unfinished job of a flow: its end wakes the jobs that wait for the flow."""
    rows: Rows = yield Statement("last_live_of_flow", {"id": id})
    return rows[0][0] if rows else None


def wait_subject(id: str) -> Op[tuple[WaitKind, str | None]]:
    """Whether an id is a job's or a flow's, and the job whose end to wait for."""
    if (yield from _awaited_job(id)):
        return WaitKind.JOB, id
    rows: Rows = yield Statement("flow", {"id": id})
    if not rows:
        raise JobNotFound(job=id)
    return WaitKind.FLOW, (yield from live_job_of_flow(id))
