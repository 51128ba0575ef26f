"""Offers: the server claims jobs for remote workers, and releases those that are not accepted.

An offer is a claim by the server, under a short lease. A remote worker accepts it with the first
renewal, which writes its own name into the row. The row names the owner at every moment, so any
server can serve any worker, and offers of a dead server are reclaimed as from any owner.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..model.claim import Claim, ClaimKey
from ..model.lifecycle import State
from ..model.outcome import Transition, release
from .claim import ClaimRequest, in_order
from .finish import Finished, finish
from .finish_and_claim import finish_and
from .lanes import LaneTurn, claim_lanes
from .operation import BEGIN, Op, Pipeline, Rows, Statement

EventKey = tuple[Claim, int]  # the claim that an event belongs to, and its number there


@dataclass(frozen=True, slots=True)
class OfferRequest(ClaimRequest):
    """A claim request for a remote worker: only tasks that it knows, and only its tenant's jobs."""

    tasks: tuple[str, ...] = ()
    tenant: str | None = None  # None: all tenants

    @property
    def takes_runs(self) -> bool:
        """False: offers may go to different workers."""
        return False

    def _turn(self) -> LaneTurn:
        """The lane of its own tenant is always considered: there may be ten thousand others."""
        turn = self.turn or LaneTurn()
        if self.tenant is None or self.tenant in turn.freed:
            return turn
        return replace(turn, freed=(*turn.freed, self.tenant))

    def _claim(self) -> Statement:
        given = {**self._common_params(), **self._task_params()}
        return self._statement("claim_offers", "claim_offers_on", given)

    def _task_params(self) -> dict[str, object]:
        tasks = json.dumps(self.tasks)
        return {"tasks": tasks, "tenant": self.tenant, "last_life": self.allow_one_crash_left}


def offer(request: OfferRequest) -> Op[list[Claim]]:
    """Claim jobs to be offered; returns them in the order in which they should start."""
    if request.turn is not None:
        return (yield from claim_lanes(request.by_lanes()))
    *_, rows = yield Pipeline(request.statements())
    return in_order(rows)


@dataclass(frozen=True, slots=True)
class HoldResult:
    """Claims of remote workers, by their state in the database."""

    cancelling: dict[ClaimKey, bool]  # renewed claims: whether a cancel was requested
    busy: frozenset[ClaimKey] = frozenset()  # still owned, but another transaction locks the row
    locked: bool = False  # `busy` because of a lock that blocks all writes of jobs


def hold(claims: Sequence[Claim], lease: float) -> Op[HoldResult]:
    """Renew claims for remote workers, and accept those that were only offered."""
    rows: Rows = yield _hold(claims, lease)
    kept = _hold_result(rows)
    if missing := [claim for claim in claims if claim.claim_key not in kept.cancelling]:
        found = yield from owners_of(missing)
        busy = frozenset(hold for hold, owner in found.items() if owner is not None)
        return HoldResult(kept.cancelling, busy)
    return kept


def locked(claims: Sequence[Claim]) -> HoldResult:
    """Claims that could not be renewed because a lock blocks all writes of jobs."""
    return HoldResult({}, frozenset(claim.claim_key for claim in claims), locked=True)


def finish_hold_and_claim(
    ended: Sequence[Transition], held: Sequence[Claim], lease: float, request: OfferRequest | None
) -> Op[tuple[Finished, HoldResult, list[Claim]]]:
    """Finish first-try successes, renew other claims, and claim new jobs, in one round trip. A
    claim that was neither renewed nor refused needs a query of its own."""
    holding = [_hold(held, lease)] if held else []
    if request is not None and request.turn is not None:
        finished, answers = yield from finish_and(ended, holding)
        kept = _hold_result(answers[0]) if held else HoldResult({})
        return finished, kept, (yield from claim_lanes(request.by_lanes()))
    asking = request.statements() if request else []
    finished, answers = yield from finish_and(ended, [*holding, *asking])
    kept = _hold_result(answers[0]) if held else HoldResult({})
    return finished, kept, in_order(answers[-1]) if request else []


def owners_of(claims: Sequence[Claim]) -> Op[dict[ClaimKey, str | None]]:
    """The owners of these claims: the remote worker, or the server that offered them; None where
    the claim no longer holds."""
    rows: Rows = yield Statement("claim_owners", rows=[_by_id(claim) for claim in claims])
    now = {(id, fence): worker for id, fence, state, worker in rows if state == State.RUNNING}
    found = {claim.claim_key: (claim, now.get((claim.id, claim.fence))) for claim in claims}
    return {
        hold: owner if claim.owned_by(owner) else None for hold, (claim, owner) in found.items()
    }


def withdraw(server: str, claims: Sequence[Claim]) -> Op[set[str]]:
    """Release offers of a server that were not accepted, unspent; returns their queues. Claims that
    have been accepted meanwhile stay with their workers."""
    yield BEGIN
    asked = [_by_id(claim) for claim in sorted(claims, key=lambda claim: claim.claim_key)]
    rows: Rows = yield Statement("still_offered", {"worker": server}, asked)
    ours = {(id, fence) for id, fence in rows}
    back = [release(claim) for claim in claims if (claim.id, claim.fence) in ours]
    if not back:
        return set()
    finished = yield from finish(back)
    return {t.claim.queue for t, state in finished.accepted if state is State.READY}


def record_late(events: Sequence[dict[str, object]]) -> Op[int]:
    """Store events that a dead worker had reported but could not send any more."""
    rows: Rows = yield Statement("record_late_events", rows=events)
    return len(rows)


def stored_events(events: Sequence[EventKey]) -> Op[set[tuple[ClaimKey, int]]]:
    """The events that are stored. Those of a lost claim are not."""
    asked = [{"job": claim.id, **claim.guard, "n": n} for claim, n in events]
    rows: Rows = yield Statement("stored_events", rows=asked)
    return {((job, fence, worker), n) for job, fence, worker, n in rows}


def stored_streams(rows: Sequence[EventKey]) -> Op[set[tuple[ClaimKey, int]]]:
    """The rows of output that are stored, or cut off by the job's limit. Those of a lost claim are
    not."""
    asked = [{"job": claim.id, **claim.guard, "n": n + 1} for claim, n in rows]
    found: Rows = yield Statement("stored_streams", rows=asked)
    return {((job, fence, worker), n - 1) for job, fence, worker, n in found}


def owned(worker: str) -> Op[list[Claim]]:
    """The claims that the database has for a worker."""
    rows: Rows = yield Statement("owned", {"worker": worker})
    return [Claim(*row) for row in rows]


def _hold(claims: Sequence[Claim], lease: float) -> Statement:
    ordered = sorted(claims, key=lambda claim: claim.claim_key)
    return Statement("hold_claims", {"lease": lease}, [{"id": c.id, **c.guard} for c in ordered])


def _hold_result(rows: Rows) -> HoldResult:
    return HoldResult(
        {(id, fence, owner): bool(cancelling) for id, fence, owner, cancelling in rows}
    )


def _by_id(claim: Claim) -> dict[str, object]:
    return {"id": claim.id, "fence": claim.fence}
