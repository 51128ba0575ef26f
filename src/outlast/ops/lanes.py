"""Claim from a limited queue: lanes are locked first, and counted then.

    1  lock the lanes whose turn it is, and those with slots just freed
    2  with a new snapshot: count what runs in each, take as many as there is room for
    3  where there are rates: take the tokens of what was claimed

A slot is a running row: nothing is counted down or up, so a lost worker leaves no count behind.
Lock and count in one statement would admit too many: its snapshot is older than the lock.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..model.claim import Claim
from ..model.errors import InvalidOption
from ..model.lane import refill_wait
from ..model.outcome import Transition
from ..model.turns import (
    FIRST_LANE,
    MAX_LANES,
    LaneCursor,
    LaneShare,
    next_cursor,
    share_out,
    turn_order,
)
from .job_actions import record_action
from .operation import BEGIN, CommitPipeline, Op, Pipeline, Row, Rows, Statement

ADOPTED_ROWS = 1000  # ready jobs among which those without a lane are looked for
DEEP_ADOPTED_ROWS = 100_000  # the same now and then: others may stand before them
FREED_PLACE = 10_000  # in lock_lanes: of a lane whose turn it is not


@dataclass(frozen=True, slots=True)
class LaneTurn:
    """Where a claim of a limited queue goes on."""

    cursor: LaneCursor = FIRST_LANE
    freed: tuple[str, ...] = ()  # lanes in which this worker has just freed a slot
    adopt: bool = False  # whether jobs without a lane are to be looked for
    deep: bool = False  # far back


class TurnClaims(list[Claim]):
    """What a claim of a limited queue took, and how its turn went."""

    def __init__(
        self,
        claims: Iterable[Claim] = (),
        cursor: LaneCursor = FIRST_LANE,
        *,
        busy: bool = False,
        adopted: int = 0,
        more: bool = False,
        refill: float | None = None,
    ) -> None:
        super().__init__(claims)
        self.cursor = cursor
        self.busy = busy  # another claim had lanes, or the queue, at this moment
        self.adopted = adopted
        self.more = more  # there are lanes that were not looked at
        self.refill = refill  # seconds after which to look for new tokens; None: no rates

    def holding(self, claims: Iterable[Claim]) -> TurnClaims:
        """The same turn, with these claims."""
        return TurnClaims(claims, self.cursor, busy=self.busy, adopted=self.adopted,
                          more=self.more, refill=self.refill)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LaneClaim:
    """What is asked of a limited queue: the parameters of the claim, and whose turn it is."""

    params: dict[str, Any]
    queue: str
    limit: int
    turn: LaneTurn
    promote: bool = False

    def opening(self) -> list[Statement]:
        """The last one locks lanes."""
        first = [Statement("promote_due", {"limit": 1000})] if self.promote else []
        if self.turn.adopt:
            reach = DEEP_ADOPTED_ROWS if self.turn.deep else ADOPTED_ROWS
            first.append(Statement("adopt_jobs", {"queue": self.queue, "reach": reach}))
        given = {"queue": self.queue, "lane": self.turn.cursor.lane, "lanes": MAX_LANES}
        freed = [{"lane": lane} for lane in self.turn.freed]
        return [*first, Statement("lock_lanes", given, freed)]

    def adopted(self, answers: Sequence[Rows]) -> int:
        return len(answers[-2]) if self.turn.adopt else 0


def claim_locked(asked: LaneClaim, answers: Sequence[Rows], commits: bool = True) -> Op[TurnClaims]:
    """Claim from the lanes that were locked by `asked.opening()`, in the same transaction; unless
    more is to come, its last statement travels with the commit."""
    adopted = asked.adopted(answers)
    lanes, facts = _read_lanes(answers[-1])
    if facts is None:
        return TurnClaims(adopted=adopted)
    ours = [lane for lane, _, got in lanes if got]
    visited = [lane for lane, place, _ in lanes if place < FREED_PLACE]
    cursor, more = asked.turn.cursor, len(visited) >= MAX_LANES
    busy = len(ours) < len(lanes)
    if not ours:
        return TurnClaims(cursor=cursor, busy=busy, adopted=adopted)
    ordered_lanes = turn_order(ours, cursor)
    shares = share_out(ordered_lanes, cursor, facts.weights, asked.limit)
    statement, last = (
        _claim_statement(asked, facts, shares),
        CommitPipeline if commits else Pipeline,
    )
    if facts.refill is not None:
        rows: Rows = yield statement
        claims = [Claim(*row) for row in rows]
        if claims:
            yield last([_spend(asked.queue, claims)])
    else:
        (rows,) = yield last([statement])
        claims = [Claim(*row) for row in rows]
    given = Counter(claim.lane or "" for claim in claims)
    if given.total() < asked.limit:  # these had no more: the turn is that of the lanes after them
        cursor = LaneCursor(visited[-1]) if visited else cursor
    else:
        cursor = next_cursor(shares, facts.weights, asked.limit, given)
    return TurnClaims(
        _in_order(claims), cursor, busy=busy, adopted=adopted, more=more, refill=facts.refill
    )


def claim_lanes(asked: LaneClaim) -> Op[TurnClaims]:
    """Take jobs of a limited queue."""
    yield BEGIN
    answers: list[Rows] = yield Pipeline(asked.opening())
    return (yield from claim_locked(asked, answers))


@dataclass(frozen=True, slots=True)
class _QueueFacts:
    alone: bool  # the whole queue is locked for this claim
    ordered: bool
    refill: float | None  # seconds between looks for new tokens; None: no rates
    weights: dict[str, int]


def _read_lanes(rows: Rows) -> tuple[list[tuple[str, int, bool]], _QueueFacts | None]:
    """Lanes in the order of their turns, with their places and whether they are locked."""
    if not rows:
        return [], None
    ordered = sorted(rows, key=lambda row: int(row[1]))
    _, _, _, alone, in_order, *rates, burst, weights = rows[0]
    refill = refill_wait(rates, burst)
    facts = _QueueFacts(bool(alone), bool(in_order), refill, json.loads(weights or "{}"))
    return [(lane, int(place), bool(got)) for lane, place, got, *_ in ordered], facts


def _claim_statement(
    asked: LaneClaim, facts: _QueueFacts, shares: Sequence[LaneShare]
) -> Statement:
    name = "claim_ordered_lanes" if facts.ordered else "claim_lanes"
    given = {**asked.params, "queue": asked.queue, "limit": asked.limit, "alone": facts.alone}
    rows = [{**share._asdict(), "place": place} for place, share in enumerate(shares)]
    return Statement(name, given, rows)


def _spend(queue: str, claims: Sequence[Claim]) -> Statement:
    spent = Counter(claim.lane or "" for claim in claims) | Counter({"": len(claims)})
    rows = [{"lane": lane, "spent": number} for lane, number in sorted(spent.items())]
    return Statement("spend_tokens", {"queue": queue}, rows)


def _in_order(claims: Sequence[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda c: (-c.priority, c.run_at, c.id))


def return_tokens(transitions: Sequence[Transition]) -> list[Statement]:
    """What gives back the tokens of jobs that were released unspent."""
    unspent: Counter[tuple[str, str]] = Counter()
    for transition in transitions:
        claim = transition.claim
        if transition.refund and claim.lane is not None:
            unspent[claim.queue, claim.lane] += 1
            unspent[claim.queue, ""] += 1
    rows = [
        {"queue": queue, "lane": lane, "spent": number}
        for (queue, lane), number in sorted(unspent.items())
    ]
    return [Statement("return_tokens", rows=rows)] if rows else []


def slow_down(queue: str, lane: str, seconds: float) -> Op[float]:
    """Close a lane for so long, for all workers; until when."""
    rows: Rows = yield Statement("slow_down", {"queue": queue, "lane": lane, "seconds": seconds})
    return float(rows[0][0])


def set_lane_paused(queue: str, lane: str, paused: bool, by: str) -> Op[None]:
    """Stop or start the claiming of one lane, or (queue "") of a tenant's lanes everywhere."""
    yield BEGIN
    if queue and queue not in (yield from limited_queues()):
        reason = (
            f"is no way to pause a part of {queue}: {queue} has no lanes, so pause it as a whole"
        )
        raise InvalidOption(option="lane", reason=reason)
    changed: list[Row] = yield Statement(
        "set_lane_paused", {"queue": queue, "lane": lane, "paused": paused}
    )
    if changed:
        what = {"queue": queue, "lane": lane} if queue else {"tenant": lane}
        kind = "pause" if paused else "resume"
        yield from record_action(kind, [None], {"by": by, **what})


def prune_lanes(limit: int) -> Op[int]:
    """Remove a batch of rows that say no more of a lane than no row does; how many went."""
    rows: Rows = yield Statement("prune_lanes", {"limit": limit})
    return len(rows)


def limited_queues() -> Op[frozenset[str]]:
    """Queues that are claimed by lanes."""
    rows: Rows = yield Statement("limited_queues")
    return frozenset(name for (name,) in rows)
