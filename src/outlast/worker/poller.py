"""Polling: which queues have jobs to claim, and when to ask next.

A notification names a queue. Between notifications the worker polls, at growing intervals.
Notifications only save time: a poll finds every queue that has jobs.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from ..loops import Backoff
from ..model.claim import Claim
from ..model.settings import WorkerSettings
from ..ops.claim import ClaimCursor, ClaimRequest, PendingQueues
from ..ops.lanes import TurnClaims
from ..store import Store
from .idle_signs import IdleSigns
from .lane_turns import LaneTurns
from .pending_queues import read_pending
from .priority_share import PriorityShare
from .queue_rotation import QueueRotation

CURSOR_VALID_S = 0.5  # seconds until a queue is claimed from its head again
BUSY_POLL_S = 0.1  # seconds between polls while a queue is busy, so that no other queue starves
# Polls and claims from the head read index entries of jobs that were taken. While another client's
# old snapshot keeps these entries, the cost grows: pauses grow with it, to bound its share.
COST_FACTOR = 20  # pause until the next poll, as a multiple of the duration of the last
MAX_POLL_GAP_S = 2.0  # seconds
HELD_BACKOFF_S = 0.25  # seconds after an empty claim from a queue with open breakers
HELD_COST_FACTOR = 100  # as COST_FACTOR: such a claim reads all jobs that are held back
# Queues with few jobs each are claimed from together: a round trip for each would cost the most.
MAX_SINGLE_QUEUES = 4  # below this number of waiting queues, each is claimed from alone
MAX_QUEUES_TOGETHER = 100  # queues
# Queues whose last claim was full are claimed from in small groups, several jobs each. One job from
# each of many would write an index page per job; all jobs of one queue, a page of the table.
FEW_TOGETHER = 5
DENSE_AFTER = 3  # full claims in a row: the queue is claimed from alone, up to the free capacity,
SHORT_LINE = 50  # while fewer queues wait: its next turn comes before its cursor expires
PREFER_FULL_FACTOR = 4  # after an empty claim, full queues go first for this many durations
MAX_HELD_CLAIM_S = 0.1  # target duration, in seconds, of a claim from queues with open breakers


class Poller:
    def __init__(
        self,
        queues: Collection[str] | None,
        settings: WorkerSettings,
        ask: Callable[[Store, Collection[str] | None], Awaitable[PendingQueues]] | None = None,
    ) -> None:
        self._find_pending = read_pending if ask is None else ask  # finds the queues that have jobs
        self._queues = None if queues is None else frozenset(queues)
        self._settings = settings
        self.held: Mapping[str, frozenset[str]] = {}  # tasks that breakers hold back, by queue
        self._rotation = QueueRotation(settings.poll_min, settings.poll_max)
        self.lanes = LaneTurns()
        self._failure_backoffs: dict[str, Backoff] = {}  # queues whose claims fail
        self._cursors: dict[str, tuple[ClaimCursor, float]] = {}  # with the end of their validity
        self._full_claims: dict[str, int] = {}  # per queue, in a row; the latest is last
        self._shares: dict[str, PriorityShare] = {}  # queues with more jobs than were claimed
        self._prefer_full_until = 0.0  # until then, queues with full claims go first
        self._single_turns = 0  # number of turns left in which each queue is claimed from alone
        self._max_held_queues = MAX_QUEUES_TOGETHER  # with open breakers, in one claim
        self._idle_backoff = settings.poll_min
        self._poll_at = 0.0
        self._idle_poll_at = 0.0  # earliest poll: polls take at most half of an idle worker's time
        self._busy_poll_at = 0.0  # earliest poll while a queue is busy
        self.idle_signs = IdleSigns()

    def serves(self, queue: str) -> bool:
        return self._queues is None or queue in self._queues

    def notify(self, queue: str) -> None:
        """Jobs may be ready in this queue, or ("") in any queue."""
        self.idle_signs.changed()
        if queue == "":
            self._poll_at = 0.0
        elif self.serves(queue):
            self._rotation.notified(queue)
            self._idle_backoff = self._settings.poll_min

    def resume(self) -> None:
        """Poll at once: notifications may have been missed while the worker did not listen."""
        self.idle_signs.changed()
        self._poll_at = self._busy_poll_at = self._idle_poll_at = 0.0
        self._idle_backoff = self._settings.poll_min
        self._rotation.notifications_missed()

    def wait(self) -> float:
        """Seconds until the next poll is due."""
        at = max(self._poll_at, self._busy_poll_at if self._rotation else self._idle_poll_at)
        return max(0.0, at - time.monotonic())

    def pause(self) -> float:
        """Seconds until a poll is due or the back-off of a queue ends."""
        return min(self.wait(), self._rotation.until_backoff_end())

    async def poll(self, store: Store) -> PendingQueues:
        """Find the queues that have jobs; make due jobs ready first."""
        now = time.monotonic()
        self._idle_backoff = min(self._settings.poll_max, self._idle_backoff * 2)
        self._poll_at = now + self._idle_backoff * random.uniform(0.75, 1.25)
        try:
            pending = await self._find_pending(store, self._queues)
        finally:  # a failed poll also counts
            took = time.monotonic() - now
            self._idle_poll_at = time.monotonic() + min(took, self._settings.poll_max)
            self._busy_poll_at = _next_time(BUSY_POLL_S, took)
        self.lanes.update(pending.queues, pending.limited)
        ours = self._add_pending(pending.queues)
        self.idle_signs.polled(ours, due=pending.due)
        return pending

    def next_queues(self) -> tuple[str, ...]:
        """Take the queues of the next claim: one, or many with few jobs each. They leave the
        rotation before the claim is sent, so that a notification during the claim adds them again.
        """
        first = self._first()
        if first is None:
            return ()
        self._single_turns = max(0, self._single_turns - 1)
        if first in self.lanes or self.takes_longest_due(first):
            return (first,)
        if (
            self._single_turns
            or self._is_dense_queue(first)
            or len(self._rotation) < MAX_SINGLE_QUEUES
        ):
            return (first,)
        most = self._max_held_queues if first in self.held else MAX_QUEUES_TOGETHER
        if first in self._full_claims:
            most = min(most, FEW_TOGETHER)
        return (first, *self._like(first, most - 1))

    def _first(self) -> str | None:
        """Take the first queue; for a while after an empty claim, one whose last claim was full.
        This bounds the time spent on empty claims, however many queues hold only unknown tasks."""
        if time.monotonic() < self._prefer_full_until:
            giving = next(iter(self._full_claims), None)
            if giving is not None and self._rotation.take(giving):
                return giving
        return self._rotation.next()

    def _like(self, first: str, most: int) -> list[str]:
        """Take the next queues with claims as full as the first one's, and with the same tasks held
        back by breakers: a statement excludes the same tasks for all its queues."""
        full, held = first in self._full_claims, self.held.get(first)
        together: list[str] = []
        others: list[str] = []
        while len(together) < most and len(others) < most:
            if (queue := self._rotation.next()) is None:
                break
            same = (queue in self._full_claims) == full and self.held.get(queue) == held
            alone = queue in self.lanes or self._is_dense_queue(queue)
            (together if same and not alone else others).append(queue)
        self._rotation.return_to_front(others)
        return together

    def _is_dense_queue(self, queue: str) -> bool:
        dense = self._full_claims.get(queue, 0) >= DENSE_AFTER and len(self._rotation) < SHORT_LINE
        return dense or self.cursor(queue) is not None

    def cursor(self, queue: str) -> ClaimCursor | None:
        """The position at which the next claim from a busy queue continues. Jobs that were added
        before it (a higher priority, a retry) are found when the cursor expires."""
        position, until = self._cursors.get(queue, (None, 0.0))
        return position if time.monotonic() < until else None

    def was_full(self, queue: str) -> bool:
        """Whether the last claim from this queue returned as many jobs as were requested."""
        return queue in self._full_claims

    def is_plain(self, queues: Sequence[str]) -> bool:
        """Whether this is a single queue without lanes."""
        return len(queues) == 1 and queues[0] not in self.lanes

    def ceiling(self, queues: Sequence[str]) -> float:
        """The number of jobs that a claim from a queue with lanes, or from several queues, may
        request beyond the concurrency."""
        return self.lanes.ceiling(queues[0]) if len(queues) == 1 else 0

    def claim_sent(self, queue: str) -> None:
        """A claim from this queue is pending, and another may follow before it returns."""
        self._rotation.found(queue)

    def takes_longest_due(self, queue: str) -> bool:
        """Whether the next claim of this queue is for the longest due job of any priority."""
        share = self._shares.get(queue)
        return share is not None and share.due

    def claimed(self, request: ClaimRequest, claims: Sequence[Claim], took: float = 0.0) -> None:
        """Note the result of a claim and its duration in seconds. A full claim means that the queue
        may have more jobs."""
        if request.queue in self.held:
            self._adapt(len(request.queues), took)
        if request.turn is not None:
            self._claimed_by_lanes(request, claims, took)
        elif request.longest_due:
            self._claimed_longest_due(request.queue, claims, took)
        elif request.other_queues:
            self._claimed_across(request, claims)
        else:
            self._note_cursor(request, claims, took)
            limit, number = request.limit, len(claims)
            if number < limit and _has_suspect(claims):
                limit = number
            self._note_result(request.queue, number, limit, whole=request.cursor is None)
        if claims:
            self.idle_signs.changed()
            self._idle_backoff = self._settings.poll_min
            self._poll_at = min(self._poll_at, time.monotonic() + self._idle_backoff)
        elif not request.longest_due:
            self._prefer_full_until = time.monotonic() + PREFER_FULL_FACTOR * took
            not_in_line = [queue for queue in request.queues if queue not in self._rotation]
            self.idle_signs.claimed_nothing(not_in_line, claims)

    def _claimed_longest_due(self, queue: str, claims: Sequence[Claim], took: float) -> None:
        """Other priorities may have more jobs, and the cursor of the highest stays valid."""
        self._failure_backoffs.pop(queue, None)
        if (share := self._shares.get(queue)) is not None:
            share.claimed(True, took)
        if claims:
            self._rotation.had_jobs(queue)
        self._rotation.found(queue)

    def _claimed_by_lanes(
        self, request: ClaimRequest, claims: Sequence[Claim], took: float
    ) -> None:
        """After an empty claim, a limited queue may still have jobs: it backs off until a slot is
        freed here, a notification arrives, or a poll is due."""
        queue = request.queue
        self._failure_backoffs.pop(queue, None)
        longest_due = request.turn is not None and request.turn.longest_due
        more = self.lanes.claimed(queue, claims, longest_due, took)
        if more is None:
            self._rotation.back_off(queue, self._settings.poll_min)
        elif more:
            self._rotation.had_jobs(queue)
            self._rotation.found(queue)
        elif isinstance(claims, TurnClaims) and claims.refill is not None:
            self._rotation.was_empty(queue, claims.refill)
            self._rotation.found(queue)  # a refill of tokens sends no notification
        else:
            self._rotation.was_empty(queue)

    def slot_freed(self, claim: Claim) -> None:
        """A job of a limited queue has ended: there is room in its lane."""
        if claim.lane is not None and self.serves(claim.queue):
            self.lanes.freed(claim.queue, claim.lane)
            self._rotation.notified(claim.queue)

    def _adapt(self, queues: int, took: float) -> None:
        """Adapt the number of queues per claim to its cost: a claim reads all jobs that are held
        back."""
        if took > MAX_HELD_CLAIM_S:
            self._max_held_queues = max(1, queues // 4)
        elif took < MAX_HELD_CLAIM_S / 4:
            self._max_held_queues = min(MAX_QUEUES_TOGETHER, self._max_held_queues * 2)

    def _claimed_across(self, request: ClaimRequest, claims: Sequence[Claim]) -> None:
        """Note a claim across queues. A full claim stops at the last queue with a claimed job: the
        queues after it were not read, and it may have more jobs itself."""
        claimed = Counter(claim.queue for claim in claims)
        queues = request.queues
        limits = dict.fromkeys(queues, request.per_queue_limit)
        if len(claims) >= request.limit:
            last = max(n for n, queue in enumerate(queues) if queue in claimed)
            self._rotation.return_to_front(queues[last + 1 :])
            queues = queues[: last + 1]
            limits[queues[last]] = claimed[queues[last]]
        for queue in queues:
            self._cursors.pop(queue, None)
            self._note_result(queue, claimed[queue], limits[queue])

    def _note_result(self, queue: str, number: int, limit: int, *, whole: bool = True) -> None:
        """`whole`: the queue was claimed from its head."""
        self._failure_backoffs.pop(queue, None)
        if number:
            self._rotation.had_jobs(queue)
        elif whole:
            self._rotation.was_empty(queue)
        full = self._full_claims.pop(queue, 0)
        if number >= limit:
            self._full_claims[queue] = full + 1
        if number >= limit or not whole:
            self._shares.setdefault(queue, PriorityShare()).claimed(False, 0.0)
            self._rotation.found(queue)
        else:
            self._shares.pop(queue, None)

    def _note_cursor(self, request: ClaimRequest, claims: Sequence[Claim], took: float) -> None:
        _, until = self._cursors.pop(request.queue, (None, 0.0))
        if request.cursor is None:
            until = _next_time(CURSOR_VALID_S, took)
        if claims and len(claims) == request.limit and claims[0].priority == claims[-1].priority:
            cursor = ClaimCursor(claims[0].priority, claims[0].run_at, claims[0].id)
            self._cursors[request.queue] = cursor, until

    def failed(self, request: ClaimRequest) -> None:
        """The claim failed. A single queue backs off and delays no other. The queues of a joint
        claim are claimed from one by one, to find the faulty one."""
        if request.other_queues:
            self._rotation.return_to_front(request.queues)
            self._single_turns = len(request.queues) + 1
            return
        backoff = self._failure_backoffs.setdefault(request.queue, Backoff())
        self.back_off(request.queue, backoff.failed())

    def return_to_front(self, queues: Sequence[str]) -> None:
        """Return queues that were not claimed from to the front of the rotation."""
        self._rotation.return_to_front(queues)

    def back_off_held(self, queues: Sequence[str], took: float = 0.0) -> None:
        """Back off after an empty claim from queues with open breakers, in proportion to its cost:
        breakers may hold back all their jobs."""
        for queue in queues:
            self.back_off(queue, max(HELD_BACKOFF_S, min(MAX_POLL_GAP_S, HELD_COST_FACTOR * took)))

    def reopen(self, queue: str) -> None:
        """A breaker has closed: end the queue's back-off."""
        if self.serves(queue):
            self._rotation.had_jobs(queue)
            self.notify(queue)

    def back_off(self, queue: str, seconds: float) -> None:
        """Claim nothing from this queue for so long; notifications do not end the back-off."""
        self._full_claims.pop(queue, None)
        self._shares.pop(queue, None)
        self._rotation.back_off(queue, seconds)

    def _add_pending(self, queues: Collection[str]) -> set[str]:
        ours = queues if self._queues is None else self._queues.intersection(queues)
        for queue in ours:  # in the order of the poll
            self._rotation.found(queue)
        seen = set(ours)
        self._rotation.forget_all_but(seen)
        return seen


def _has_suspect(claims: Sequence[Claim]) -> bool:
    """Whether a claim has one crash left. Only one such job is claimed at a time, so the queue may
    have more jobs."""
    return any(claim.crashes and claim.one_crash_left for claim in claims)


def _next_time(pause: float, took: float) -> float:
    """The earliest time of the next poll, given the duration of the last."""
    return time.monotonic() + max(pause, min(MAX_POLL_GAP_S, COST_FACTOR * took))
