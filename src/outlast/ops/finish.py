"""The one way out of `running`, for every outcome and for everyone who may end an attempt.

The claim's fence and its owner guard the write. What comes with the outcome (the attempt's record,
what the handler enqueued) commits in the same transaction, and only for claims that still held.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.claim import Claim, ClaimKey
from ..model.errors import ClaimLost
from ..model.job import NewJob
from ..model.lifecycle import STATES, Outcome, State
from ..model.outcome import Transition
from .claim import ClaimRequest, in_order
from .dependents import apply_counted, dependents_statements, notify_dependents
from .enqueue import enqueue
from .flow_links import hold_flows
from .lanes import LaneClaim, claim_locked, return_tokens
from .operation import BEGIN, CommitPipeline, Op, Pipeline, Rows, Statement


@dataclass(slots=True)
class Finished:
    """Which transitions were accepted, as what; the rest lost their claims before."""

    accepted: list[tuple[Transition, State]] = field(default_factory=list)
    lost: list[Transition] = field(default_factory=list)
    duplicates: list[Transition] = field(
        default_factory=list
    )  # accepted before; this was sent again
    queues: set[str] = field(default_factory=set)  # where something became ready by it

    def add(self, other: Finished) -> None:
        self.accepted += other.accepted
        self.lost += other.lost
        self.duplicates += other.duplicates
        self.queues |= other.queues


def finish(
    transitions: Sequence[Transition], events: Sequence[dict[str, Any]] = (), channel: str = ""
) -> Op[Finished]:
    """Apply transitions whose claims still hold, with all that comes with them. Those who read
    events are told on `channel` that there are some."""
    yield BEGIN
    if events:
        yield Pipeline(record_events(events, channel))
    transitions, rivals = _split_rivals(transitions)
    rows: Rows = (yield _finish(transitions)) if transitions else []
    queues = yield from _follow_up(transitions, rows)
    finished = yield from _resolve_missing(transitions, rows)
    finished.queues |= queues
    if rivals:
        finished.add((yield from finish(rivals)))
    return finished


def _split_rivals(transitions: Sequence[Transition]) -> tuple[list[Transition], list[Transition]]:
    """One for each job and fence, and the rest. The database's answer does not name the owner, and
    at most one of several that report the same fence can be it."""
    first: dict[tuple[str, int], Transition] = {}
    rivals = []
    for transition in transitions:
        if first.setdefault(_job_and_fence(transition), transition) is not transition:
            rivals.append(transition)
    return list(first.values()), rivals


def _job_and_fence(transition: Transition) -> tuple[str, int]:
    return transition.claim.id, transition.claim.fence


def record_events(events: Sequence[dict[str, Any]], channel: str) -> list[Statement]:
    """What keeps events, and says so if a channel is named."""
    params = {"channel": channel, "queues": '[""]'}
    notify = [Statement("notify_workers", params)] if channel else []
    return [Statement("record_events", rows=events), *notify]


def _follow_up(transitions: Sequence[Transition], rows: Rows) -> Op[set[str]]:
    """What comes with outcomes that were accepted."""
    held = _states(rows)
    accepted = [t for t in transitions if _job_and_fence(t) in held]
    if recorded := [t for t in accepted if not _unrecorded(t, held[_job_and_fence(t)])]:
        yield Pipeline(
            [
                Statement("record_attempts", rows=[_record(t) for t in recorded]),
                Statement(
                    "record_ends", rows=[_end_event(t, held[_job_and_fence(t)]) for t in recorded]
                ),
            ]
        )
    if tokens := return_tokens(accepted):
        yield Pipeline(tokens)
    queues = yield from enqueue_followups([job for t in accepted for job in t.jobs])
    ended = [(id, state) for id, _, state, tied in rows if tied and State(state).final]
    return queues | (yield from notify_dependents(ended, _traces(accepted)))


def _traces(transitions: Sequence[Transition]) -> dict[str, str]:
    """The spans of the attempts that ended, by job."""
    return {t.claim.id: t.trace for t in transitions if t.trace is not None}


def enqueue_followups(jobs: Sequence[NewJob]) -> Op[set[str]]:
    """What the handlers enqueued. One that ran on in a flow which was cancelled adds nothing."""
    flows = {job.flow for job in jobs if job.flow} - {f.id for job in jobs for f in job.new_flows}
    flow_states = (yield from hold_flows(flows)) if flows else {}
    closed = {flow for flow in flows if flow_states.get(flow, (True, False))[0]}
    made = yield from enqueue(_without_closed_flows(jobs, closed), held=flows)
    return {job.queue for job in made if job.state is State.READY}


def _without_closed_flows(jobs: Sequence[NewJob], closed: set[str]) -> list[NewJob]:
    """All but those of these flows, and those that come after them; flows that are founded here are
    founded all the same."""
    if not closed:
        return list(jobs)
    dropped: set[str] = set()
    kept = list(jobs)
    while out := [job for job in kept if job.flow in closed or dropped.intersection(job.after)]:
        dropped |= {job.id for job in out}
        kept = [job for job in kept if job.id not in dropped]
    founds = tuple(flow for job in jobs for flow in job.new_flows)
    return [replace(kept[0], new_flows=founds), *kept[1:]] if kept else []


def finish_with_keys(transition: Transition) -> Op[Finished]:
    """The same for one whose follow-ups have keys. These may have to wait for another transaction:
    they go first, while no row of ours is locked, and alone, so that no other outcome waits too."""
    yield BEGIN
    yield Statement("wait_briefly")
    queues = yield from enqueue_followups(transition.jobs)
    finished = yield from finish([transition._replace(jobs=())])
    if finished.lost:
        raise ClaimLost(job=transition.claim.id)  # which takes back what was enqueued
    finished.queues |= queues
    return finished


def finish_and_claim(
    transitions: Sequence[Transition], request: ClaimRequest | None = None
) -> Op[tuple[Finished, list[Claim]]]:
    """Give back first-try successes without follow-ups, and take new jobs: in one round trip."""
    if request is not None and request.turn is not None:
        return (yield from finish_and_claim_lanes(transitions, request.by_lanes()))
    finished, answers = yield from finish_and(transitions, _claim_statements(request))
    return finished, in_order(answers[-1]) if request else []


def finish_and_claim_lanes(
    transitions: Sequence[Transition], asked: LaneClaim
) -> Op[tuple[Finished, list[Claim]]]:
    """The same of a limited queue, in one transaction: the slots that are freed here can be taken
    again. Jobs whose end concerns others are finished first: that commits, and ends locks."""
    tied = any(transition.claim.has_dependents for transition in transitions)
    if tied:
        finished, _ = yield from finish_and(transitions, [])
    yield BEGIN
    if tied:
        answers: list[Rows] = yield Pipeline(asked.opening())
    else:
        finished, answers = yield from finish_and(transitions, asked.opening())
    return finished, (yield from claim_locked(asked, answers))


def finish_and(
    transitions: Sequence[Transition], others: Sequence[Statement]
) -> Op[tuple[Finished, list[Rows]]]:
    """The same with whatever else is to be said; the answers to that."""
    if any(transition.claim.has_dependents for transition in transitions):
        return (yield from _finish_with_dependents(transitions, others))
    finishing = _succeed(transitions)
    answers: list[Rows] = yield Pipeline([*finishing, *others])
    accepted_count = sum(accepted for rows in answers[: len(finishing)] for (accepted,) in rows)
    if accepted_count == len(transitions):
        finished = Finished([(transition, State.SUCCEEDED) for transition in transitions])
    else:
        finished = yield from _resolve_missing(transitions, [], final=False)
        if len(finished.duplicates) == accepted_count:
            finished.duplicates.clear()  # those were accepted just now
    return finished, answers[len(finishing) :]


def _finish_with_dependents(
    transitions: Sequence[Transition], others: Sequence[Statement]
) -> Op[tuple[Finished, list[Rows]]]:
    """The same in one transaction, for those whose end concerns others. Where no jobs are to be
    made of it, nothing can follow from the answers: successes doom nobody, and break no team."""
    yield BEGIN
    transitions, rivals = _split_rivals(transitions)
    rows: Rows = yield _finish(transitions)
    finished = yield from _resolve_missing(transitions, rows)
    if rivals:
        finished.add((yield from finish(rivals)))
    has_hooks = any(transition.claim.has_hooks for transition in transitions)
    lookup, count_down = dependents_statements([(id, state) for id, _, state, tied in rows if tied])
    if has_hooks:
        dependents, counted, *answers = yield Pipeline([lookup, count_down, *others])
        queues = yield from apply_counted(dependents, counted, _traces(transitions))
    else:
        counted, *answers = yield CommitPipeline([count_down, *others])
        queues = yield from apply_counted([], counted)
    finished.queues |= queues
    return finished, answers


def _claim_statements(request: ClaimRequest | None) -> list[Statement]:
    return request.statements() if request else []


def _finish(transitions: Sequence[Transition]) -> Statement:
    return Statement("finish", rows=[_row(t) for t in _by_id(transitions)])


def _succeed(transitions: Sequence[Transition]) -> list[Statement]:
    """One statement for each owner: a worker hands in its own jobs, so there is one of them. A
    remote worker's job that it has not accepted yet is finished by `_settle`."""
    ordered = _by_id(transitions)
    owners = {t.claim.worker for t in ordered}
    if len(owners) == 1:
        return [_succeed_as(owners.pop(), ordered)]
    by_owner: dict[str, list[Transition]] = {}
    for transition in ordered:
        by_owner.setdefault(transition.claim.worker, []).append(transition)
    return [_succeed_as(owner, theirs) for owner, theirs in by_owner.items()]


def _succeed_as(owner: str, ordered: Sequence[Transition]) -> Statement:
    rows = [{"id": t.claim.id, "fence": t.claim.fence, "result": t.result} for t in ordered]
    return Statement("succeed", {"owner": owner}, rows)


def _by_id(transitions: Sequence[Transition]) -> list[Transition]:
    """Of their ids: who locks many rows locks them in one order, so that finishes and renewals that
    meet wait for each other in one direction only."""
    return sorted(transitions, key=lambda t: t.claim.id)


def _states(rows: Rows) -> dict[tuple[str, int], State]:
    return {(id, fence): STATES[state] for id, fence, state, _ in rows}


def lookup_finished(transitions: Sequence[Transition]) -> Op[Finished]:
    """How it went with those whose answer got lost."""
    return (yield from _resolve_missing(transitions, []))


def _resolve_missing(
    transitions: Sequence[Transition], rows: Rows, final: bool = True
) -> Op[Finished]:
    """Tell who lost. A finish that is sent again because its answer got lost did not lose: the
    claim's own record says how it ended. Nor did one that somebody has come to wait for since it
    was claimed: it is finished once more, and they are told."""
    states = _states(rows)
    finished = Finished(
        [(t, states[_job_and_fence(t)]) for t in transitions if _job_and_fence(t) in states]
    )
    missing = [t for t in transitions if _job_and_fence(t) not in states]
    if not missing:
        return finished
    rows = yield Statement(
        "finished_claims", rows=[{"id": t.claim.id, **t.claim.guard} for t in missing]
    )
    ended: dict[ClaimKey, tuple[State, str | None]] = {
        (id, fence, owner): (State(state), outcome) for id, fence, owner, state, outcome in rows
    }
    to_retry: list[Transition] = []
    for transition in missing:
        state, outcome = ended.get(transition.claim.claim_key, (None, None))
        if state is State.RUNNING and outcome is None and not final:
            to_retry.append(transition)
        elif state is not None and _was_ours(transition, state, outcome):
            finished.accepted.append((transition, state))
            finished.duplicates.append(transition)
        elif (
            transition.quiet
        ):  # given back before, by us or by another: nothing of it could be lost
            finished.accepted.append((transition, transition.to))
            finished.duplicates.append(transition)
        else:
            finished.lost.append(transition)
    if to_retry:
        finished.add((yield from finish(to_retry)))
    return finished


def _was_ours(transition: Transition, state: State, outcome: str | None) -> bool:
    if outcome is None:
        return _first_try_success(transition) and state is State.SUCCEEDED
    return outcome == transition.outcome


def _unrecorded(transition: Transition, state: State) -> bool:
    """Many jobs that a breaker holds back leave no record each, unless one was cancelled
    meanwhile."""
    return _first_try_success(transition) or (transition.quiet and state is not State.CANCELLED)


def _first_try_success(transition: Transition) -> bool:
    return transition.outcome is Outcome.SUCCEEDED and transition.claim.attempt == 1


def _row(transition: Transition) -> dict[str, Any]:
    row = {
        "id": transition.claim.id,
        **transition.claim.guard,
        "state": transition.to,
        "result": transition.result,
    }
    if transition.is_simple_success:
        return row
    return row | {
        "delay": transition.delay,
        "refund": transition.refund,
        "failures": transition.failures,
        "crashes": transition.crashes,
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


def _end_event(transition: Transition, state: State) -> dict[str, Any]:
    """The same for those who follow the job: in short, and what became of it. (Its traceback is
    with the attempt's record.)"""
    claim, error = transition.claim, transition.error or {}
    data = {
        "outcome": transition.outcome,
        "state": state,
        "worker": claim.worker,
        "error": {name: error.get(name) for name in ("type", "message")} if error else None,
        "delay": transition.delay,
    }
    row = {"job": claim.id, "fence": claim.fence, "attempt": claim.attempt}
    return row | {"data": json.dumps(data)}


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
