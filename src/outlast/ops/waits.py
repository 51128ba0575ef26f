"""Durable waits: begin when an attempt ends, are woken by signals, ends and the clock, and are
decided once, under the claim of the attempt that goes on.

A wake-up only makes the job ready: the next attempt looks again and decides. To miss none, the end
of an attempt and the look for signals are one transaction, which has locked the job's row, and so
are a signal and its wake-up.
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
    """Lock the jobs that handlers wait for, before the rows of those that wait: their finishers
    would otherwise miss the new wait, or lock the rows in the other order."""
    awaited = sorted({t.wait.awaits for t in transitions if t.wait and t.wait.awaits})
    if awaited:
        yield Statement("hold_prerequisites", {"ids": json.dumps(awaited)})


def begin_waits(transitions: Sequence[Transition]) -> Op[set[str]]:
    """Keep the waits of attempts that ended in this transaction; returns the queues of jobs that
    are ready again, because what they wait for is there."""
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
    """The waits of a job that began in earlier attempts, or the one of a name, by name."""
    rows: Rows = yield Statement("kept_waits", {"job": job, "name": name})
    return {row[0]: KeptWait(*row) for row in rows}


def settle_wait(claim: Claim, wait: Wait, kept: KeptWait | None) -> Op[KeptWait | None]:
    """Decide a wait, if there is something to decide: a signal is there, the awaited job has
    ended, or time is up. What was decided is kept, and a repeat returns it. None: it goes on."""
    if (yield from _look(claim, wait, kept)) is None:
        return None
    yield BEGIN
    guard = {"job": claim.id, "offered_by": None, **claim.guard}
    held: Rows = yield Statement("hold_claim", guard)
    if not held:
        raise ClaimLost(job=claim.id)
    kept = (yield from kept_waits(claim.id, wait.name)).get(wait.name)
    if kept is not None and kept.over:
        return kept
    end = yield from _look(claim, wait, kept)
    if end is None:
        return None
    now = float(held[0][0])
    since, until = (now, None) if kept is None else (kept.since, kept.until)
    yield Pipeline(_end_statements(claim, wait, end, now - since))
    subjects = json.dumps(wait.subjects)
    return KeptWait(
        wait.name, wait.kind, subjects, since, until, end.outcome, end.source, end.result
    )


_BEGINNING = ("awaits", "forms")  # columns of a wait that has not ended


class WaitEnd(NamedTuple):
    """What ends a wait."""

    outcome: WaitOutcome
    source: str | None = None
    result: str | None = None
    signal: int | None = None  # its number


def _end_statements(claim: Claim, wait: Wait, end: WaitEnd, spent: float) -> list[Statement]:
    facts = {
        "wait": wait.name,
        "outcome": end.outcome,
        "seconds": round(spent, 3),
        "text": describe_wait(wait.kind, wait.subjects, spent, end.outcome),
    }
    event = {"job": claim.id, "kind": "wait", "data": json.dumps(facts)}
    ended = {"outcome": end.outcome, "source": end.source, "result": end.result}
    kept = {name: value for name, value in _row(claim, wait).items() if name not in _BEGINNING}
    statements = [
        Statement("end_wait", kept | ended),
        Statement("record_action", rows=[event]),
    ]
    if end.signal is not None:
        given = {"seq": end.signal, "wait": wait.name}
        statements.insert(0, Statement("take_signal", given))
    return statements


def _look(claim: Claim, wait: Wait, kept: KeptWait | None) -> Op[WaitEnd | None]:
    """What ends a wait now. A signal that is there wins over a time-out that nobody has decided."""
    if wait.kind is WaitKind.SIGNAL:
        given = {"job": claim.id, "wait": wait.name, "names": json.dumps(wait.subjects)}
        found: Rows = yield Statement("first_signal", given)
        for seq, name, value in found:
            return WaitEnd(WaitOutcome.SIGNAL, name, value, seq)
    elif wait.kind is WaitKind.JOB:
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
    if (kept is not None and kept.is_due) or (kept is None and wait.delay == 0):
        return WaitEnd(WaitOutcome.TIMED_OUT)
    return None


def _awaited_job(id: str) -> Op[Rows]:
    """State, result and error of a job, or of an archived one."""
    rows = yield from find(Statement("awaited_job", {"id": id}), "past_ended", [id])
    return [row[1:4] for row in rows]


def live_job_of_flow(id: str) -> Op[str | None]:
    """The newest job of a flow that has not ended: its end wakes whoever waits for the flow."""
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
