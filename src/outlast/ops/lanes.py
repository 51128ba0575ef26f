"""Claim from a limited queue: lock its lanes, then count their running jobs.

    1  lock the lanes whose turn it is, and those with slots just freed
    2  with a new snapshot: count the running jobs of each, claim as many as there is room for
    3  with rates: take the tokens of the claimed jobs

A slot is a running row: there is no counter, so a lost worker leaves none behind. Locking and
counting in one statement would admit too many: its snapshot is older than the lock.

Where lanes have equal shares (no weights, rates or order; no limit of the queue), PostgreSQL
distributes the slots: 1 and 2 are two statements in one round trip.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model.claim import Claim
from ..model.errors import ClaimLost, InvalidOption
from ..model.lane import refill_wait
from ..model.outcome import Transition
from ..model.turns import (
    FIRST_LANE,
    LaneCursor,
    LaneShare,
    lanes_considered,
    next_cursor,
    share_out,
    turn_order,
)
from .job_actions import record_action
from .operation import BEGIN, CommitPipeline, Op, Pipeline, Row, Rows, Statement

ADOPTED_ROWS = 1000  # ready jobs searched for those without a lane
DEEP_ADOPTED_ROWS = 100_000  # the same for an occasional deep search: other jobs may be in front
FREED_POSITION = 10_000  # in lock_lanes: the first lane out of turn


@dataclass(frozen=True, slots=True)
class LaneTurn:
    """The position from which a claim of a limited queue continues."""

    cursor: LaneCursor = FIRST_LANE
    freed: tuple[str, ...] = ()  # lanes in which this worker just freed a slot
    adopt: bool = False  # whether to search for jobs without a lane
    deep: bool = False  # whether that search is deep
    longest_due: bool = False  # of each lane, instead of its highest priority
    even: bool = False  # lanes had equal shares in the last turn
    first: bool = False  # of a new worker: it continues at the position of other workers


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The limits of a queue that shape a claim."""

    alone: bool  # this claim locks the whole queue
    ordered: bool
    refill: float | None  # seconds between checks for new tokens; None: no rates
    weights: dict[str, int] | None
    lane_batch: int | None = None

    @classmethod
    def of(cls, columns: Sequence[Any]) -> TurnLimits:
        alone, ordered, *rates, burst, weights, lane_batch = columns
        refill, weighted = refill_wait(rates, burst), json.loads(weights or "null")
        return cls(bool(alone), bool(ordered), refill, weighted, lane_batch)

    @property
    def even(self) -> bool:
        """Whether the next turn may be claimed in one round trip. (On SQLite every claim is
        alone.)"""
        return not (self.alone or self.ordered) and self.weights is None and self.refill is None


class TurnClaims(list[Claim]):
    """The claims of a limited queue, and the result of its turn."""

    def __init__(
        self,
        claims: Iterable[Claim] = (),
        cursor: LaneCursor = FIRST_LANE,
        *,
        busy: bool = False,
        adopted: int = 0,
        more: bool = False,
        limits: TurnLimits | None = None,
    ) -> None:
        super().__init__(claims)
        self.cursor = cursor
        self.busy = busy  # another claim held lanes or the queue
        self.adopted = adopted
        self.more = more  # some lanes were not considered
        self.limits = limits  # as the claim found them
        self.in_turn = 0  # jobs of the lanes in turn
        self.full = False  # the lanes in turn filled the claim

    @property
    def refill(self) -> float | None:
        """Seconds until the next check for tokens; None: no rates."""
        return self.limits.refill if self.limits else None

    @property
    def even(self) -> bool:
        """Whether lanes have equal shares."""
        return self.limits is not None and self.limits.even

    def holding(self, claims: Iterable[Claim]) -> TurnClaims:
        """The same turn with these claims."""
        held = TurnClaims(claims, self.cursor, busy=self.busy, adopted=self.adopted,
                          more=self.more, limits=self.limits)  # fmt: skip
        held.in_turn, held.full = self.in_turn, self.full
        return held


@dataclass(frozen=True, slots=True)
class LaneClaim:
    """A claim request for a limited queue: its parameters and its turn."""

    params: dict[str, object]
    queue: str
    limit: int
    turn: LaneTurn
    promote: bool = False
    runs: bool = False  # of an ordered lane with a lane_batch, more than one job

    @property
    def even(self) -> bool:
        """Whether `even_statements()` may be the whole claim."""
        return self.turn.even and not self.turn.longest_due and not self.turn.cursor.left

    def opening(self) -> list[Statement]:
        """Statements that open the claim; the last one locks lanes."""
        return [*self._first(), Statement("lock_lanes", self._lanes(), self._freed())]

    def even_statements(self) -> list[Statement]:
        """Statements that claim equal shares in one round trip."""
        lock = Statement("lock_even_lanes", self._lanes(), self._freed())
        given = {**self.params, "queue": self.queue, "limit": self.limit, "alone": False}
        return [*self._first(), lock, Statement("claim_even_lanes", given)]

    def _first(self) -> list[Statement]:
        first = [Statement("promote_due", {"limit": 1000})] if self.promote else []
        if self.turn.adopt:
            reach = DEEP_ADOPTED_ROWS if self.turn.deep else ADOPTED_ROWS
            first.append(Statement("adopt_jobs", {"queue": self.queue, "reach": reach}))
        return first

    def _lanes(self) -> dict[str, object]:
        return {
            "queue": self.queue,
            "lane": self.turn.cursor.lane,
            "lanes": lanes_considered(self.limit),
        }

    def _freed(self) -> list[dict[str, object]]:
        return [{"lane": lane, "place": position} for position, lane in enumerate(self.turn.freed)]

    def adopted(self, answers: Sequence[Rows]) -> int:
        """Jobs that got a lane, from the answers before that of the lock."""
        return len(answers[-1]) if self.turn.adopt else 0


def claim_locked(asked: LaneClaim, answers: Sequence[Rows], commits: bool = True) -> Op[TurnClaims]:
    """Claim from the lanes that `asked.opening()` locked, in the same transaction. Unless more
    statements follow, the last one travels with the commit."""
    adopted = asked.adopted(answers[:-1])
    lanes, facts = _read_lanes(answers[-1])
    if facts is None:
        return TurnClaims(adopted=adopted)
    visited = [lane for lane, position, _ in lanes if position < FREED_POSITION]
    ours = [lane for lane, position, got in lanes if got and position < FREED_POSITION]
    freed = [lane for lane, position, got in lanes if got and position >= FREED_POSITION]
    cursor, more = asked.turn.cursor, len(visited) >= lanes_considered(asked.limit)
    busy = len(ours) + len(freed) < len(lanes)
    if not ours and not freed:
        return TurnClaims(cursor=cursor, busy=busy, adopted=adopted, limits=facts)
    weights = facts.weights or {}
    in_turn, had_turn = turn_order(ours, cursor, more)
    shares = share_out(in_turn, cursor, weights, asked.limit)
    others = share_out([*freed, *had_turn], FIRST_LANE, weights, asked.limit)
    statement, last = (
        _claim_statement(asked, facts, [*shares, *others]),
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
    given = _by_lane(claims)
    number = sum(given[lane] for lane in in_turn)
    full = number >= asked.limit
    if full:
        cursor = next_cursor(shares, weights, asked.limit, given, more)
    elif visited:  # these lanes are empty: the turn passes to the next ones
        cursor = LaneCursor(visited[-1])
    found = TurnClaims(
        _in_order(claims), cursor, busy=busy, adopted=adopted, more=more, limits=facts
    )
    found.in_turn, found.full = number, full
    return found


def read_even_claims(asked: LaneClaim, answers: Sequence[Rows]) -> TurnClaims:
    """The result of `asked.even_statements()`. A queue that has got weights, rates or an order
    since the last turn returns nothing, and is claimed in two steps the next time."""
    *first, locked, rows = answers
    adopted, cursor = asked.adopted(first), asked.turn.cursor
    if not locked:
        return TurnClaims(adopted=adopted)
    ((text, considered, visited, last, *columns),) = locked
    lanes, facts = json.loads(text), TurnLimits.of(columns)
    in_turn = [lane for lane, is_in_turn in lanes if is_in_turn]
    claims = [Claim(*row) for row in rows]
    given = _by_lane(claims)
    number, more = sum(given[lane] for lane in in_turn), visited >= lanes_considered(asked.limit)
    full = number >= asked.limit
    if full:
        shares = share_out(in_turn, cursor, {}, asked.limit)
        cursor = next_cursor(shares, {}, asked.limit, given, more)
    elif lanes and last is not None:
        cursor = LaneCursor(last)
    found = TurnClaims(
        _in_order(claims), cursor, busy=len(lanes) < considered, adopted=adopted,
        more=bool(lanes) and (more or not facts.even), limits=facts,
    )  # fmt: skip
    found.in_turn, found.full = number, full
    return found


def claim_lanes(asked: LaneClaim) -> Op[TurnClaims]:
    """Claim jobs of a limited queue."""
    if asked.turn.first:
        asked = yield from _where_others_are(asked)
    if asked.even:
        return read_even_claims(asked, (yield Pipeline(asked.even_statements())))
    yield BEGIN
    answers: list[Rows] = yield Pipeline(asked.opening())
    return (yield from claim_locked(asked, answers))


def _where_others_are(asked: LaneClaim) -> Op[LaneClaim]:
    """Start at the position of other workers. If every new worker began with the first lane, the
    last lanes would never be reached where workers are short-lived."""
    rows: Rows = yield Statement("latest_lane", {"queue": asked.queue})
    cursor = LaneCursor(rows[0][0]) if rows else FIRST_LANE
    return replace(asked, turn=replace(asked.turn, cursor=cursor))


def _read_lanes(rows: Rows) -> tuple[list[tuple[str, int, bool]], TurnLimits | None]:
    """Lanes in the order of their turns, with position and lock."""
    if not rows:
        return [], None
    ordered = sorted(rows, key=lambda row: int(row[1]))
    facts = TurnLimits.of(rows[0][3:])
    return [(lane, int(position), bool(got)) for lane, position, got, *_ in ordered], facts


def _claim_statement(asked: LaneClaim, facts: TurnLimits, shares: Sequence[LaneShare]) -> Statement:
    by_priority = "claim_lanes_longest_due" if asked.turn.longest_due else "claim_lanes"
    name = "claim_ordered_lanes" if facts.ordered else by_priority
    given = {**asked.params, "queue": asked.queue, "limit": asked.limit, "alone": facts.alone}
    if facts.ordered and facts.lane_batch is not None:
        name = "claim_lane_runs"
        given["run"] = min(asked.limit, facts.lane_batch) if asked.runs else 1
    return Statement(name, {**given, "shares": json.dumps(dict(shares))})


def _spend(queue: str, claims: Sequence[Claim]) -> Statement:
    spent = _by_lane(claims) | Counter({"": len(claims)})
    rows = [{"lane": lane, "spent": number} for lane, number in sorted(spent.items())]
    return Statement("spend_tokens", {"queue": queue}, rows)


def _by_lane(claims: Sequence[Claim]) -> Counter[str]:
    return Counter(claim.lane or "" for claim in claims)


def _in_order(claims: Sequence[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda c: (-c.priority, c.run_at, c.id))


def return_tokens(transitions: Sequence[Transition]) -> list[Statement]:
    """Statements that return the tokens of jobs that were released unspent."""
    unspent: Counter[tuple[str, str]] = Counter()
    for transition in transitions:
        claim = transition.claim
        if transition.refund and claim.lane is not None and transition.wait is None:
            unspent[claim.queue, claim.lane] += 1
            unspent[claim.queue, ""] += 1
    rows = [
        {"queue": queue, "lane": lane, "spent": number}
        for (queue, lane), number in sorted(unspent.items())
    ]
    return [Statement("return_tokens", rows=rows)] if rows else []


def slow_down(claim: Claim, seconds: float) -> Op[float]:
    """Close the lane of a claimed job for a number of seconds, for all workers, while the claim
    holds; returns the time until which it is closed."""
    given = {"job": claim.id, "offered_by": None, **claim.guard, "seconds": seconds}
    rows: Rows = yield Statement("slow_down", given)
    if not rows:
        raise ClaimLost(job=claim.id)
    return float(rows[0][0])


def set_lane_paused(queue: str, lane: str, paused: bool, by: str) -> Op[None]:
    """Pause or resume one lane, or (queue "") a tenant's lanes in all queues."""
    yield BEGIN
    if queue and queue not in (yield from limited_queues()):
        reason = f"cannot pause a part of {queue}: {queue} has no lanes, so pause it as a whole"
        raise InvalidOption(option="lane", reason=reason)
    changed: list[Row] = yield Statement(
        "pause_lane" if paused else "resume_lane", {"queue": queue, "lane": lane}
    )
    if changed:
        what = {"queue": queue, "lane": lane} if queue else {"tenant": lane}
        kind = "pause" if paused else "resume"
        yield from record_action(kind, [None], {"by": by, **what})


def prune_lanes(limit: int) -> Op[int]:
    """Delete a batch of lane rows that equal the defaults; returns their number."""
    rows: Rows = yield Statement("prune_lanes", {"limit": limit})
    return len(rows)


def limited_queues() -> Op[frozenset[str]]:
    """Queues that are claimed by lanes."""
    rows: Rows = yield Statement("limited_queues")
    return frozenset(name for (name,) in rows)
