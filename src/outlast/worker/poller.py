"""Where there may be something to claim, and when to look.

News name a queue; between news a worker looks for itself, often at first, then calmer. News only
make it faster: every queue that has something is found by looking.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

from ..loops import Backoff
from ..model.claim import Claim
from ..model.settings import WorkerSettings
from ..ops.claim import ClaimCursor, ClaimRequest, PendingQueues, poll, poll_queues, promote
from ..ops.lanes import TurnClaims
from ..store import Store
from .idle_signs import IdleSigns
from .lane_turns import LaneTurns
from .priority_share import PriorityShare
from .queue_rotation import QueueRotation

CURSOR_VALID_S = 0.5  # seconds before a queue is asked from its head again
BUSY_POLL_S = 0.1  # seconds between looks while some queue keeps us busy: no other must starve
# Both walk over what the index keeps of jobs that were taken: while somebody's old snapshot keeps
# it, ever longer. Then they are made less often, so that they never take a large part of our time.
COST_FACTOR = 20  # times as long as it took is the pause until the next
MAX_POLL_GAP_S = 2.0  # seconds
HELD_REST_S = 0.25  # seconds between claims from a queue in which breakers are open, if it is vain
HELD_COST_FACTOR = 100  # the same, as in SHARE: such a claim walks over all jobs that are held back
MAX_NAMED_QUEUES = 1000  # queues of a worker that are asked for by name
# Many queues that hold few jobs each are asked together: a round trip each would cost the most.
MAX_SINGLE_QUEUES = 4  # queues in line that are still asked one by one
MAX_QUEUES_TOGETHER = 100  # queues
# Those that gave as much as was asked are asked a few together, for several jobs each. One job of
# each of many would write a page of the index for every job; all jobs of one, a page of the table.
FEW_TOGETHER = 5
DENSE_AFTER = 3  # full answers in a row: a queue is asked alone, for as much as there is room,
SHORT_LINE = 50  # if no more are in line: then it is its turn again before its place is forgotten
VAIN_SHARE = 4  # times as long as a claim in vain took, queues that gave their fill come first
MAX_HELD_CLAIM_S = 0.1  # seconds that a claim from queues with open breakers should take at most


class Poller:
    def __init__(
        self,
        queues: Collection[str] | None,
        settings: WorkerSettings,
        ask: Callable[[Store, Collection[str] | None], Awaitable[PendingQueues]] | None = None,
    ) -> None:
        self._ask = read_pending if ask is None else ask  # which queues have something
        self._queues = None if queues is None else frozenset(queues)
        self._settings = settings
        self.held: Mapping[str, frozenset[str]] = {}  # tasks that breakers hold back, by queue
        self._rotation = QueueRotation(settings.poll_min, settings.poll_max)
        self.lanes = LaneTurns()
        self._backing_off: dict[str, Backoff] = {}  # queues whose claims fail
        self._cursors: dict[str, tuple[ClaimCursor, float]] = {}  # where to go on, and until when
        self._full_answers: dict[str, int] = {}  # of a queue in a row; the latest is last
        self._shares: dict[str, PriorityShare] = {}  # queues with more jobs than were taken
        self._vain_until = 0.0  # until then, those come first
        self._alone = 0  # turns for which queues are asked one by one
        self._held_together = MAX_QUEUES_TOGETHER  # with open breakers, asked together
        self._idle_backoff = settings.poll_min
        self._poll_at = 0.0
        self._rest_poll_at = 0.0  # not before: looks are at most half of an idle worker's time
        self._busy_poll_at = 0.0  # not before, while some queue keeps us busy
        self.idle_signs = IdleSigns()

    def serves(self, queue: str) -> bool:
        return self._queues is None or queue in self._queues

    def notify(self, queue: str) -> None:
        """Something is new: in this queue, or ("") somewhere."""
        self.idle_signs.changed()
        if queue == "":
            self._poll_at = 0.0
        elif self.serves(queue):
            self._rotation.notified(queue)
            self._idle_backoff = self._settings.poll_min

    def resume(self) -> None:
        """Nobody listened for a while, and news were missed: look at once, everywhere."""
        self.idle_signs.changed()
        self._poll_at = self._busy_poll_at = self._rest_poll_at = 0.0
        self._idle_backoff = self._settings.poll_min
        self._rotation.news_missed()

    def wait(self) -> float:
        """Seconds until it is time to look."""
        at = max(self._poll_at, self._busy_poll_at if self._rotation else self._rest_poll_at)
        return max(0.0, at - time.monotonic())

    def pause(self) -> float:
        """Seconds until there is something to do: a look, or a queue that has rested."""
        return min(self.wait(), self._rotation.until_rested())

    async def poll(self, store: Store) -> PendingQueues:
        """Ask which queues have something; make due jobs ready first, if nobody else has."""
        now = time.monotonic()
        self._idle_backoff = min(self._settings.poll_max, self._idle_backoff * 2)
        self._poll_at = now + self._idle_backoff * random.uniform(0.75, 1.25)
        try:
            pending = await self._ask(store, self._queues)
        finally:  # one that failed took its time too
            took = time.monotonic() - now
            self._rest_poll_at = time.monotonic() + min(took, self._settings.poll_max)
            self._busy_poll_at = _next_time(BUSY_POLL_S, took)
        self.lanes.update(pending.queues, pending.limited)
        ours = self._add_pending(pending.queues)
        self.idle_signs.polled(ours, due=pending.due)
        return pending

    def next_queues(self) -> tuple[str, ...]:
        """Whose turn it is: one queue, or many that hold few jobs each. They are forgotten until
        there is word of them again, so that news which come while we ask are not lost."""
        first = self._first()
        if first is None:
            return ()
        self._alone = max(0, self._alone - 1)
        if first in self.lanes or self.takes_longest_due(first):
            return (first,)
        if self._alone or self._is_dense_queue(first) or len(self._rotation) < MAX_SINGLE_QUEUES:
            return (first,)
        most = self._held_together if first in self.held else MAX_QUEUES_TOGETHER
        if first in self._full_answers:
            most = min(most, FEW_TOGETHER)
        return (first, *self._like(first, most - 1))

    def _first(self) -> str | None:
        """The first in line; after a claim in vain, for a while, one that gave its fill: claims in
        vain, however many queues there are of unknown tasks, take a bounded part of our time."""
        if time.monotonic() < self._vain_until:
            giving = next(iter(self._full_answers), None)
            if giving is not None and self._rotation.take(giving):
                return giving
        return self._rotation.next()

    def _like(self, first: str, most: int) -> list[str]:
        """Those next in line that give as much as the first, and in which breakers hold back the
        same tasks: one statement leaves out the same tasks everywhere."""
        full, held = first in self._full_answers, self.held.get(first)
        together: list[str] = []
        others: list[str] = []
        while len(together) < most and len(others) < most:
            if (queue := self._rotation.next()) is None:
                break
            same = (queue in self._full_answers) == full and self.held.get(queue) == held
            alone = queue in self.lanes or self._is_dense_queue(queue)
            (together if same and not alone else others).append(queue)
        self._rotation.put_back(others)
        return together

    def _is_dense_queue(self, queue: str) -> bool:
        dense = self._full_answers.get(queue, 0) >= DENSE_AFTER and len(self._rotation) < SHORT_LINE
        return dense or self.cursor(queue) is not None

    def cursor(self, queue: str) -> ClaimCursor | None:
        """Where to go on in a queue that keeps us busy. What comes to stand before it since (a
        higher priority, a retry) is found from the head, a moment later."""
        position, until = self._cursors.get(queue, (None, 0.0))
        return position if time.monotonic() < until else None

    def gave_fill(self, queue: str) -> bool:
        """Whether a queue gave as many jobs as it was asked for, the last time."""
        return queue in self._full_answers

    def is_plain(self, queues: Sequence[str]) -> bool:
        """Whether these are a single queue without lanes."""
        return len(queues) == 1 and queues[0] not in self.lanes

    def asked(self, queue: str) -> None:
        """A claim from this queue is under way, and another may follow before it returns."""
        self._rotation.found(queue)

    def takes_longest_due(self, queue: str) -> bool:
        """Whether the next claim of this queue is for the longest due job of any priority."""
        share = self._shares.get(queue)
        return share is not None and share.due

    def claimed(self, request: ClaimRequest, claims: Sequence[Claim], took: float = 0.0) -> None:
        """What we got there, in so many seconds: as much as we had room for means that there may be
        more."""
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
            self._note_answer(
                request.queue, len(claims), request.limit, whole=request.cursor is None
            )
        if claims:
            self.idle_signs.changed()
            self._idle_backoff = self._settings.poll_min
            self._poll_at = min(self._poll_at, time.monotonic() + self._idle_backoff)
        elif not request.longest_due:
            self._vain_until = time.monotonic() + VAIN_SHARE * took
            not_in_line = [queue for queue in request.queues if queue not in self._rotation]
            self.idle_signs.vain(not_in_line, claims)

    def _claimed_longest_due(self, queue: str, claims: Sequence[Claim], took: float) -> None:
        """Other priorities may have more, and the place of the highest one is where it was."""
        self._backing_off.pop(queue, None)
        if (share := self._shares.get(queue)) is not None:
            share.claimed(True, took)
        if claims:
            self._rotation.had_jobs(queue)
        self._rotation.found(queue)

    def _claimed_by_lanes(
        self, request: ClaimRequest, claims: Sequence[Claim], took: float
    ) -> None:
        """A limited queue that gave nothing may have jobs all the same: it rests until a slot is
        freed here, news come, or a look is due."""
        queue = request.queue
        self._backing_off.pop(queue, None)
        longest_due = request.turn is not None and request.turn.longest_due
        more = self.lanes.claimed(queue, claims, longest_due, took)
        if more is None:
            self._rotation.rest(queue, self._settings.poll_min)
        elif more:
            self._rotation.had_jobs(queue)
            self._rotation.found(queue)
        elif isinstance(claims, TurnClaims) and claims.refill is not None:
            self._rotation.was_empty(queue, claims.refill)
            self._rotation.found(queue)  # tokens come without news, and before a look may
        else:
            self._rotation.was_empty(queue)

    def slot_freed(self, claim: Claim) -> None:
        """A job of a limited queue has ended: there is room in its lane."""
        if claim.lane is not None and self.serves(claim.queue):
            self.lanes.freed(claim.queue, claim.lane)
            self._rotation.notified(claim.queue)

    def _adapt(self, queues: int, took: float) -> None:
        """A claim walks over all jobs that are held back: fewer queues, if these are many."""
        if took > MAX_HELD_CLAIM_S:
            self._held_together = max(1, queues // 4)
        elif took < MAX_HELD_CLAIM_S / 4:
            self._held_together = min(MAX_QUEUES_TOGETHER, self._held_together * 2)

    def _claimed_across(self, request: ClaimRequest, claims: Sequence[Claim]) -> None:
        """Queues are asked in their order until there are enough jobs: those after the last that
        gave one were not asked then, and the last may have more."""
        gave = Counter(claim.queue for claim in claims)
        queues = request.queues
        limits = dict.fromkeys(queues, request.per_queue_limit)
        if len(claims) >= request.limit:
            last = max(n for n, queue in enumerate(queues) if queue in gave)
            self._rotation.put_back(queues[last + 1 :])
            queues = queues[: last + 1]
            limits[queues[last]] = gave[queues[last]]
        for queue in queues:
            self._cursors.pop(queue, None)
            self._note_answer(queue, gave[queue], limits[queue])

    def _note_answer(self, queue: str, number: int, limit: int, *, whole: bool = True) -> None:
        """`whole`: it was asked from its head."""
        self._backing_off.pop(queue, None)
        if number:
            self._rotation.had_jobs(queue)
        elif whole:
            self._rotation.was_empty(queue)
        full = self._full_answers.pop(queue, 0)
        if number >= limit:
            self._full_answers[queue] = full + 1
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
            first = claims[0]
            self._cursors[request.queue] = (
                ClaimCursor(first.priority, first.run_at, first.id),
                until,
            )

    def failed(self, request: ClaimRequest) -> None:
        """It could not be asked. It rests for a while: its trouble is not the other queues'. Many
        that were asked together are asked one by one, to find the one in trouble."""
        if request.other_queues:
            self._rotation.put_back(request.queues)
            self._alone = len(request.queues) + 1
            return
        backoff = self._backing_off.setdefault(request.queue, Backoff())
        self.rest(request.queue, backoff.failed())

    def put_back(self, queues: Sequence[str]) -> None:
        """They could not be asked, and are first again."""
        self._rotation.put_back(queues)

    def rest_held(self, queues: Sequence[str], took: float = 0.0) -> None:
        """Breakers may hold back all that they have, and to ask again costs as much as this did."""
        for queue in queues:
            self.rest(queue, max(HELD_REST_S, min(MAX_POLL_GAP_S, HELD_COST_FACTOR * took)))

    def reopen(self, queue: str) -> None:
        """A breaker has closed: whatever rest there was is over."""
        if self.serves(queue):
            self._rotation.had_jobs(queue)
            self.notify(queue)

    def rest(self, queue: str, seconds: float) -> None:
        """Leave a queue alone for so long, whatever the news."""
        self._full_answers.pop(queue, None)
        self._shares.pop(queue, None)
        self._rotation.rest(queue, seconds)

    def _add_pending(self, queues: Collection[str]) -> set[str]:
        ours = queues if self._queues is None else self._queues.intersection(queues)
        for queue in ours:  # in the order of the poll
            self._rotation.found(queue)
        seen = set(ours)
        self._rotation.forget_all_but(seen)
        return seen


async def read_pending(store: Store, queues: Collection[str] | None = None) -> PendingQueues:
    """Which queues have something, of all or of these; due jobs are made ready first. Few queues
    are looked up by name: other queues, however many, cost nothing."""
    few = queues is not None and len(queues) <= MAX_NAMED_QUEUES
    operation = partial(poll_queues, sorted(queues)) if few and queues is not None else poll
    pending: PendingQueues = await store.arun(operation)
    if pending.due:
        await store.arun(promote)
        pending = await store.arun(operation)
    return pending


def _next_time(pause: float, took: float) -> float:
    """When to do again what has just been done, and took so long."""
    return time.monotonic() + max(pause, min(MAX_POLL_GAP_S, COST_FACTOR * took))
