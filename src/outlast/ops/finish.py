"""The one way out of `running`, for every outcome and for everyone who may end an attempt.

The claim's fence guards the write. What comes with the outcome (the attempt's record, what the
handler enqueued) commits in the same transaction, and only for claims that still held.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.errors import ClaimLost
from ..model.job import Hold
from ..model.lifecycle import Outcome, State
from ..model.outcome import Transition
from .claim import Wanted, in_order
from .enqueue import enqueue
from .statement import BEGIN, Op, Rows, Statement, Together


@dataclass(slots=True)
class Finished:
    """Which transitions were accepted, as what; the rest lost their claims before."""

    accepted: list[tuple[Transition, State]] = field(default_factory=list)
    lost: list[Transition] = field(default_factory=list)
    again: list[Transition] = field(default_factory=list)  # accepted before; this was sent again


def finish(
    transitions: Sequence[Transition], events: Sequence[dict[str, Any]] = ()
) -> Op[Finished]:
    """Apply transitions whose claims still hold, with all that comes with them."""
    if events or not all(transition.plain for transition in transitions):
        yield BEGIN
    if events:
        yield Statement("record_events", rows=events)
    rows: Rows = (yield _finish(transitions)) if transitions else []
    states = _by_hold(rows)
    accepted = [t for t in transitions if t.claim.hold in states]
    if records := [_record(t) for t in accepted if not _at_once(t)]:
        yield Statement("record_attempts", rows=records)
    yield from enqueue([job for t in accepted for job in t.jobs])
    return (yield from _settle(transitions, states))


def finish_with_keys(transition: Transition) -> Op[Finished]:
    """The same for one whose follow-ups have keys. These may have to wait for another transaction:
    they go first, while no row of ours is locked, and alone, so that no other outcome waits too."""
    yield BEGIN
    yield Statement("wait_briefly")
    yield from enqueue(transition.jobs)
    finished = yield from finish([replace(transition, jobs=())])
    if finished.lost:
        raise ClaimLost(job=transition.claim.id)  # which takes back what was enqueued
    return finished


def turn(transitions: Sequence[Transition], wanted: Wanted) -> Op[tuple[Finished, list[Any]]]:
    """Give back plain successes and take new jobs, in one round trip."""
    statements = wanted.statements()
    if transitions:
        statements.insert(0, _finish(transitions))
    answers: list[Rows] = yield Together(statements)
    states = _by_hold(answers[0]) if transitions else {}
    finished = yield from _settle(transitions, states)
    return finished, in_order(answers[-1])


def _finish(transitions: Sequence[Transition]) -> Statement:
    """In the order of their ids: who locks many rows locks them in one order, so that finishes and
    renewals that meet wait for each other in one direction only."""
    ordered = sorted(transitions, key=lambda t: t.claim.hold)
    return Statement("finish", rows=[_row(t) for t in ordered])


def _by_hold(rows: Rows) -> dict[Hold, State]:
    return {(id, fence): State(state) for id, fence, state in rows}


def settled(transitions: Sequence[Transition]) -> Op[Finished]:
    """How it went with those whose answer got lost."""
    return (yield from _settle(transitions, {}))


def _settle(transitions: Sequence[Transition], states: dict[Hold, State]) -> Op[Finished]:
    """Tell who lost. A finish that is sent again because its answer got lost did not lose: the
    claim's own record says how it ended."""
    finished = Finished([(t, states[t.claim.hold]) for t in transitions if t.claim.hold in states])
    missing = [t for t in transitions if t.claim.hold not in states]
    if not missing:
        return finished
    asked = [{"id": t.claim.id, "fence": t.claim.fence} for t in missing]
    rows: Rows = yield Statement("settled", rows=asked)
    ended = {(id, fence): (State(state), outcome) for id, fence, state, outcome in rows}
    for transition in missing:
        state, outcome = ended.get(transition.claim.hold, (None, None))
        if state is not None and _was_ours(transition, state, outcome):
            finished.accepted.append((transition, state))
            finished.again.append(transition)
        else:
            finished.lost.append(transition)
    return finished


def _was_ours(transition: Transition, state: State, outcome: str | None) -> bool:
    if outcome is None:
        return _at_once(transition) and state is State.SUCCEEDED
    return outcome == transition.outcome


def _at_once(transition: Transition) -> bool:
    return transition.outcome is Outcome.SUCCEEDED and transition.claim.attempt == 1


def _row(transition: Transition) -> dict[str, Any]:
    return {
        "id": transition.claim.id,
        "fence": transition.claim.fence,
        "state": transition.to,
        "delay": transition.delay,
        "refund": transition.refund,
        "failures": transition.failures,
        "crashes": transition.crashes,
        "result": transition.result,
        "error": _json(transition.error),
    }


def _record(transition: Transition) -> dict[str, Any]:
    claim = transition.claim
    return {
        "job": claim.id,
        "fence": claim.fence,
        "attempt": claim.attempt,
        "worker": claim.worker,
        "outcome": transition.outcome,
        "error": _json(transition.error),
        "started_at": claim.started_at,
    }


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
