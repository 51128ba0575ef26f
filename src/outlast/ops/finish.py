"""The one way out of `running`, for every outcome and every part that may end an attempt.

The claim's fence and owner guard the write. The attempt's record and the jobs that the handler
enqueued commit in the same transaction, and only for claims that still hold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ..model.claim import ClaimEvent, ClaimKey
from ..model.errors import ClaimLost
from ..model.job import NewJob
from ..model.lifecycle import STATES, Outcome, State
from ..model.outcome import Transition
from ..model.wait import Wait
from .dependents import notify_dependents
from .enqueue import enqueue
from .flow_links import hold_flows
from .lanes import return_tokens
from .operation import BEGIN, Op, Pipeline, Rows, Statement
from .waits import begin_waits, hold_awaited


@dataclass(slots=True)
class Finished:
    """Transitions that were accepted, with the new state, and those whose claims were lost."""

    accepted: list[tuple[Transition, State]] = field(default_factory=list)
    lost: list[Transition] = field(default_factory=list)
    duplicates: list[Transition] = field(default_factory=list)  # accepted before, and sent again
    queues: set[str] = field(default_factory=set)  # with jobs that became ready

    def add(self, other: Finished) -> None:
        self.accepted += other.accepted
        self.lost += other.lost
        self.duplicates += other.duplicates
        self.queues |= other.queues


def finish(
    transitions: Sequence[Transition], events: Sequence[ClaimEvent] = (), channel: str = ""
) -> Op[Finished]:
    """Apply transitions whose claims still hold, with records and follow-up jobs. Readers of
    events are notified on `channel`."""
    yield BEGIN
    if events:
        yield Pipeline(record_events(events, channel))
    transitions, rivals = split_rivals(transitions)
    yield from hold_awaited(transitions)
    rows: Rows = (yield finish_statement(transitions)) if transitions else []
    queues = yield from _follow_up(transitions, rows)
    finished = yield from resolve_missing(transitions, rows)
    finished.queues |= queues
    if rivals:
        finished.add((yield from finish(rivals)))
    return finished


def split_rivals(transitions: Sequence[Transition]) -> tuple[list[Transition], list[Transition]]:
    """One transition for each job and fence, and the rest. The returned rows do not name the owner,
    and at most one of several workers that report the same fence is the owner."""
    first: dict[tuple[str, int], Transition] = {}
    rivals = []
    for transition in transitions:
        if first.setdefault(_job_and_fence(transition), transition) is not transition:
            rivals.append(transition)
    return list(first.values()), rivals


def _job_and_fence(transition: Transition) -> tuple[str, int]:
    return transition.claim.id, transition.claim.fence


def record_events(events: Sequence[ClaimEvent], channel: str) -> list[Statement]:
    """Statements that store events and, with a channel, notify their readers."""
    params = {"channel": channel, "queues": '[""]'}
    notify = [Statement("notify_workers", params)] if channel else []
    return [Statement("record_events", rows=events), *notify]


def _follow_up(transitions: Sequence[Transition], rows: Rows) -> Op[set[str]]:
    """Store the records and follow-up jobs of accepted outcomes, and notify dependents."""
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
    waiting = [t for t in accepted if t.wait and held[_job_and_fence(t)] is not State.CANCELLED]
    if waiting:
        queues |= yield from begin_waits(waiting)
    ended = [(id, state) for id, _, state, tied, _ in rows if tied and State(state).final]
    return queues | (yield from notify_dependents(ended, attempt_traces(accepted)))


def attempt_traces(transitions: Sequence[Transition]) -> dict[str, str]:
    """Trace contexts of the attempts that ended, by job."""
    return {t.claim.id: t.trace for t in transitions if t.trace is not None}


def enqueue_followups(jobs: Sequence[NewJob]) -> Op[set[str]]:
    """Insert the jobs that handlers enqueued, except into flows that were cancelled meanwhile."""
    flows = {job.flow for job in jobs if job.flow} - {f.id for job in jobs for f in job.new_flows}
    flow_states = (yield from hold_flows(flows)) if flows else {}
    closed = {flow for flow in flows if flow_states.get(flow, (True, False))[0]}
    made = yield from enqueue(_without_closed_flows(jobs, closed), held=flows)
    return {job.queue for job in made if job.state is State.READY}


def _without_closed_flows(jobs: Sequence[NewJob], closed: set[str]) -> list[NewJob]:
    """The jobs outside these flows that do not depend on jobs in them. New flows are inserted
    regardless."""
    if not closed:
        return list(jobs)
    dropped: set[str] = set()
    kept = list(jobs)
    while out := [job for job in kept if job.flow in closed or dropped.intersection(job.after)]:
        dropped |= {job.id for job in out}
        kept = [job for job in kept if job.id not in dropped]
    new_flows = tuple(flow for job in jobs for flow in job.new_flows)
    return [replace(kept[0], new_flows=new_flows), *kept[1:]] if kept else []


def finish_with_keys(transition: Transition) -> Op[Finished]:
    """Finish a job whose follow-ups have unique keys. Their inserts may wait for another
    transaction: they go first, while no row is locked, and alone, so that no other outcome
    waits."""
    yield BEGIN
    yield Statement("wait_briefly")
    queues = yield from enqueue_followups(transition.jobs)
    finished = yield from finish([transition._replace(jobs=())])
    if finished.lost:
        raise ClaimLost(job=transition.claim.id)  # rolls back the follow-ups
    finished.queues |= queues
    return finished


def finish_statement(transitions: Sequence[Transition]) -> Statement:
    return Statement("finish", rows=[_row(t) for t in by_id(transitions)])


def by_id(transitions: Sequence[Transition]) -> list[Transition]:
    """Sorted by id: finishes and renewals lock rows in one order, so that they cannot deadlock."""
    return sorted(transitions, key=attrgetter("claim.id"))


def _states(rows: Rows) -> dict[tuple[str, int], State]:
    return {(id, fence): STATES[state] for id, fence, state, *_ in rows}


def lookup_finished(transitions: Sequence[Transition]) -> Op[Finished]:
    """Look up the outcome of finishes whose response was lost."""
    return (yield from resolve_missing(transitions, []))


def resolve_missing(
    transitions: Sequence[Transition], rows: Rows, final: bool = True
) -> Op[Finished]:
    """Find out which claims were lost. A finish that is repeated because its response was lost is
    not one of them: the claim's own record has its outcome. Nor is a job that got dependents after
    it was claimed: it is finished again, and the dependents are notified."""
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
        elif transition.quiet:  # released before, by this worker or another: nothing was lost
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
    """First-try successes have no record, nor have jobs that a breaker holds back, unless they
    were cancelled meanwhile."""
    return _first_try_success(transition) or (transition.quiet and state is not State.CANCELLED)


def _first_try_success(transition: Transition) -> bool:
    return transition.outcome is Outcome.SUCCEEDED and transition.claim.attempt == 1


def _row(transition: Transition) -> dict[str, object]:
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
        **_wait_columns(transition.wait),
    }


def _wait_columns(wait: Wait | None) -> dict[str, object]:
    return {} if wait is None else {"wait": wait.name, "due": wait.due}


def _record(transition: Transition) -> dict[str, object]:
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


def _end_event(transition: Transition, state: State) -> dict[str, object]:
    """The event for followers of the job: outcome and new state. The traceback is in the attempt's
    record."""
    claim, error = transition.claim, transition.error or {}
    data: dict[str, object] = {
        "outcome": transition.outcome,
        "state": state,
        "worker": claim.worker,
        "error": {name: error.get(name) for name in ("type", "message")} if error else None,
        "delay": transition.delay,
    }
    if transition.wait is not None:
        data |= {"wait": transition.wait.name, "for": list(transition.wait.subjects)}
    row = {"job": claim.id, "fence": claim.fence, "attempt": claim.attempt}
    return row | {"data": json.dumps(data)}


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value)
