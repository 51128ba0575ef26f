"""Finish first-try successes and claim new jobs in one round trip: the fast path of a worker."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.claim import Claim
from ..model.lifecycle import State
from ..model.outcome import Transition
from .claim import ClaimRequest, in_order
from .dependents import apply_counted, dependents_statements
from .finish import (
    Finished,
    attempt_traces,
    by_id,
    finish,
    resolve_missing,
    split_rivals,
)
from .lanes import LaneClaim, claim_lanes, claim_locked, read_even_claims
from .operation import BEGIN, CommitPipeline, Op, Pipeline, Rows, Statement


def finish_and_claim(
    transitions: Sequence[Transition], request: ClaimRequest | None = None
) -> Op[tuple[Finished, list[Claim]]]:
    """Finish first-try successes without follow-ups, and claim new jobs, in one round trip."""
    if request is not None and request.turn is not None:
        return (yield from finish_and_claim_lanes(transitions, request.by_lanes()))
    finished, answers = yield from finish_and(transitions, _claim_statements(request))
    return finished, in_order(answers[-1]) if request else []


def finish_and_claim_lanes(
    transitions: Sequence[Transition], asked: LaneClaim
) -> Op[tuple[Finished, list[Claim]]]:
    """The same for a limited queue, in one transaction, so that freed slots can be claimed again.
    Jobs with dependents are finished first: that commits and releases their locks."""
    tied = any(transition.claim.has_dependents for transition in transitions)
    if tied or asked.turn.first:
        finished, _ = yield from finish_and(transitions, [])
        return finished, (yield from claim_lanes(asked))
    if asked.even:
        finished, answers = yield from finish_and(transitions, asked.even_statements())
        return finished, read_even_claims(asked, answers)
    yield BEGIN
    finished, answers = yield from finish_and(transitions, asked.opening())
    return finished, (yield from claim_locked(asked, answers))


def finish_and(
    transitions: Sequence[Transition], others: Sequence[Statement]
) -> Op[tuple[Finished, list[Rows]]]:
    """Finish first-try successes beside other statements; returns the rows of the latter, too."""
    if [t for t in transitions if t.claim.has_dependents]:
        return (yield from _finish_with_dependents(transitions, others))
    finishing = _succeed("succeed", transitions)
    answers: list[Rows] = yield Pipeline([*finishing, *others])
    accepted_count = sum(accepted for rows in answers[: len(finishing)] for (accepted,) in rows)
    if accepted_count == len(transitions):
        finished = Finished([(transition, State.SUCCEEDED) for transition in transitions])
    else:
        finished = yield from resolve_missing(transitions, [], final=False)
        if len(finished.duplicates) == accepted_count:
            finished.duplicates.clear()  # accepted just now
    return finished, answers[len(finishing) :]


def _finish_with_dependents(
    transitions: Sequence[Transition], others: Sequence[Statement]
) -> Op[tuple[Finished, list[Rows]]]:
    """The same in one transaction, for jobs with dependents. Without hooks no dependent causes an
    enqueue: a success fails no dependent and no group."""
    yield BEGIN
    transitions, rivals = split_rivals(transitions)
    answers: list[Rows] = yield Pipeline(_succeed("succeed_tied", transitions))
    rows = [row for accepted in answers for row in accepted]
    finished = yield from resolve_missing(transitions, rows, final=False)
    if rivals:
        finished.add((yield from finish(rivals)))
    has_hooks = any(transition.claim.has_hooks for transition in transitions)
    has_hooks |= any(awaited for *_, awaited in rows)
    ended = [(id, state) for id, _, state, tied, _ in rows if tied]
    lookup, count_down = dependents_statements(ended)
    if has_hooks:
        dependents, counted, *answers = yield Pipeline([lookup, count_down, *others])
        queues = yield from apply_counted(dependents, counted, attempt_traces(transitions))
    else:
        counted, *answers = yield CommitPipeline([count_down, *others])
        queues = yield from apply_counted([], counted)
    finished.queues |= queues
    return finished, answers


def _claim_statements(request: ClaimRequest | None) -> list[Statement]:
    return request.statements() if request else []


def _succeed(name: str, transitions: Sequence[Transition]) -> list[Statement]:
    """One statement per owner; a worker reports its own jobs, so usually one. A job that its remote
    worker has not accepted yet is finished by `resolve_missing`."""
    ordered = by_id(transitions)
    owners = {t.claim.worker for t in ordered}
    if len(owners) == 1:
        return [_succeed_as(name, owners.pop(), ordered)]
    by_owner: dict[str, list[Transition]] = {}
    for transition in ordered:
        by_owner.setdefault(transition.claim.worker, []).append(transition)
    return [_succeed_as(name, owner, theirs) for owner, theirs in by_owner.items()]


def _succeed_as(name: str, owner: str, ordered: Sequence[Transition]) -> Statement:
    rows = [{"id": t.claim.id, "fence": t.claim.fence, "result": t.result} for t in ordered]
    return Statement(name, {"owner": owner}, rows)
