"""A worker's turns in limited queues: the cursor of each queue, and lanes with a free slot."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ..model.claim import Claim
from ..model.turns import FIRST_LANE, MAX_LANES, LaneCursor
from ..ops.lanes import ADOPTED_ROWS, LaneTurn, TurnClaims
from .priority_share import PriorityShare

ADOPT_INTERVAL_S = 1.0  # seconds between searches for jobs without a lane
DEEP_ADOPT_INTERVAL_S = 60.0  # seconds between deep searches
MAX_EMPTY_TURNS = 32  # empty claims in a row before the queue backs off


@dataclass(slots=True)
class _QueueTurn:
    cursor: LaneCursor | None = None  # none before the first turn
    freed: dict[str, None] = field(default_factory=dict)  # latest last
    adopt_at: float = 0.0
    deep_adopt_at: float = 0.0
    empty: int = 0  # empty claims in a row
    even: bool = False  # lanes had equal shares in the last turn
    in_turn: int = 0  # jobs of the lanes in turn in the last claim
    full: bool = False  # whether these filled the claim
    share: PriorityShare = field(default_factory=PriorityShare)


class LaneTurns:
    """Queues that are claimed by lanes, with their cursors."""

    def __init__(self) -> None:
        self._queues: dict[str, _QueueTurn] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._queues

    def __bool__(self) -> bool:
        return bool(self._queues)

    def update(self, seen: Collection[str], limited: Collection[str]) -> None:
        """Note the queues that a poll found."""
        for queue in limited:
            self._queues.setdefault(queue, _QueueTurn())
        if self._queues:
            for queue in set(self._queues).intersection(seen).difference(limited):
                del self._queues[queue]

    def freed(self, queue: str, lane: str) -> None:
        """Note a freed slot: the next claim includes the lane of this ended job."""
        if (turn := self._queues.get(queue)) is not None:
            turn.freed.pop(lane, None)
            turn.freed[lane] = None
            if len(turn.freed) > MAX_LANES:
                del turn.freed[next(iter(turn.freed))]

    def ceiling(self, queue: str) -> float:
        """The number of jobs of a queue that a claim may request beyond the concurrency: what the
        lanes in turn provide. With more, lanes just freed would get extra turns."""
        turn = self._queues.get(queue)
        if turn is None:
            return 0
        return math.inf if turn.full else turn.in_turn

    def next(self, queue: str, ended: Iterable[Claim] = ()) -> LaneTurn | None:
        """The turn of a claim; `ended` are the jobs whose outcomes are sent with it. None: a queue
        without lanes."""
        turn = self._queues.get(queue)
        if turn is None:
            return None
        theirs = [claim.lane for claim in ended if claim.queue == queue and claim.lane is not None]
        freed = {**turn.freed, **dict.fromkeys(theirs)}
        lanes = tuple(freed)[-MAX_LANES:]
        # While the lanes in turn fill the claims, locking others would be useless.
        turn.freed, lanes = (dict.fromkeys(lanes), ()) if turn.full else ({}, lanes)
        now = time.monotonic()
        adopt = now >= turn.adopt_at
        if adopt:
            turn.adopt_at = now + ADOPT_INTERVAL_S
        deep = adopt and now >= turn.deep_adopt_at
        if deep:
            turn.deep_adopt_at = now + DEEP_ADOPT_INTERVAL_S
        first, cursor = turn.cursor is None, turn.cursor or FIRST_LANE
        return LaneTurn(cursor, lanes, adopt, deep, turn.share.due, turn.even, first)

    def claimed(
        self, queue: str, claims: Sequence[Claim], longest_due: bool = False, took: float = 0.0
    ) -> bool | None:
        """Note the result of a turn. True: there may be more. None: other claims held the lanes.
        False: nothing to claim for now."""
        turn = self._queues.get(queue)
        if turn is None or not isinstance(claims, TurnClaims):
            return bool(claims)
        turn.cursor, turn.even = claims.cursor, claims.even
        turn.in_turn, turn.full = claims.in_turn, claims.full
        turn.share.claimed(longest_due, took)
        if claims.adopted >= ADOPTED_ROWS:
            turn.adopt_at = 0.0
        turn.empty = 0 if claims or claims.adopted else turn.empty + 1
        if not turn.empty:
            return True
        if claims.busy:
            return None
        if longest_due:
            return True  # other priorities may have jobs
        if claims.more and turn.empty < MAX_EMPTY_TURNS:
            return True
        turn.empty = 0
        return False
