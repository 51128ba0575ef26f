"""Turns of lanes: whose turn it is, and how many jobs each lane may give.

    cursor ─▶ b   c   d   a        lanes with ready jobs, from the cursor on and round
              1   1   4   1        jobs a turn: the weight of the lane
    room 3:   1   1   1            b, c, and one of d's four; the cursor stays at d, 3 left

A claim with room for more than one round gives every lane the same number of whole turns, and the
rest in order. A lane with a million jobs delays one with a single job by one turn, not a million.

Lanes out of turn, in which slots were just freed, come last: they give what the lanes in turn have
no room for, and never move the cursor. Else a worker would stay with the lanes that it has just
served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

MIN_LANES = 64  # lanes that a claim considers, however few jobs it asks for: some may be full
MAX_LANES = 128  # lanes that a claim considers, however many jobs it asks for


def lanes_considered(limit: int) -> int:
    """Lanes that a claim of so many jobs considers: one for each, so that each gives its turn and
    no more while others wait; and the one at the cursor, which has had its turn."""
    return max(MIN_LANES, min(limit + 1, MAX_LANES))


class LaneCursor(NamedTuple):
    """The position from which a worker's turns continue."""

    lane: str = ""
    left: int = 0  # jobs left in the lane's turn; 0: the next lane is first


FIRST_LANE = LaneCursor()


class LaneShare(NamedTuple):
    """Jobs that a lane may give to one claim."""

    lane: str
    share: int


def turn_order(
    lanes: Sequence[str], cursor: LaneCursor, more: bool = False
) -> tuple[list[str], list[str]]:
    """Lanes in the order of their turns, and those that are not in turn. The lane at the cursor is
    last if its turn is over; if there are more lanes, these are before it."""
    if lanes and lanes[0] == cursor.lane and not cursor.left:
        return ([*lanes[1:]], [lanes[0]]) if more else ([*lanes[1:], lanes[0]], [])
    return list(lanes), []


def share_out(
    lanes: Sequence[str], cursor: LaneCursor, weights: Mapping[str, int], limit: int
) -> list[LaneShare]:
    """The share of each lane, in the order of their turns. The first lanes together can fill the
    limit; the others give for lanes without room."""
    quanta = [weights.get(lane, 1) for lane in lanes]
    total = sum(quanta)
    if limit < total:
        if lanes and lanes[0] == cursor.lane and cursor.left:
            quanta[0] = min(cursor.left, quanta[0])
        return [LaneShare(*pair) for pair in zip(lanes, quanta, strict=True)]
    turns, rest = divmod(limit, total) if total else (0, 0)
    shares = []
    for lane, quantum in zip(lanes, quanta, strict=True):
        extra = min(quantum, rest)
        rest -= extra
        shares.append(LaneShare(lane, quantum * turns + extra))
    return shares


def next_cursor(
    shares: Sequence[LaneShare],
    weights: Mapping[str, int],
    limit: int,
    given: Counter[str],
    more: bool = False,
) -> LaneCursor:
    """The cursor after a claim, from the shares of the lanes in turn and the number of jobs that
    each lane gave. If there are more lanes, a claim of whole turns passes on to these."""
    if not shares:
        return FIRST_LANE
    if sum(given[lane] for lane, _ in shares) < limit:
        return LaneCursor(shares[-1].lane)
    if limit < sum(weights.get(lane, 1) for lane, _ in shares):
        last = next(share for share in reversed(shares) if given[share.lane])
        return LaneCursor(last.lane, max(0, last.share - given[last.lane]))
    if more:
        return LaneCursor(shares[-1].lane)
    with_rest = [
        (lane, quantum - share % quantum)
        for lane, share in shares
        if share % (quantum := weights.get(lane, 1))
    ]
    if with_rest:  # only the last lane of the rest may have had part of its turn
        return LaneCursor(*with_rest[-1])
    turns = shares[-1].share // weights.get(shares[-1].lane, 1)
    extra = [lane for lane, share in shares if share > turns * weights.get(lane, 1)]
    return LaneCursor(extra[-1]) if extra else LaneCursor(shares[-1].lane)
