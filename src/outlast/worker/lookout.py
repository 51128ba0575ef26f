"""Where there may be something to claim, and when to look.

News name a queue; between news a worker looks for itself, often at first, then calmer. News only
make it faster: every queue that has something is found by looking.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from ..model.job import Claim
from ..model.settings import WorkerSettings
from ..ops.claim import Place, Seen, Wanted, look, look_among, promote
from ..store import Store
from .loops import Backoff
from .queue_turns import QueueTurns

SAME_PLACE = 0.5  # seconds before a queue is asked from its head again
BUSY_LOOK = 0.1  # seconds between looks while some queue keeps us busy: the others must not starve
# Both walk over what the index keeps of jobs that were taken: while somebody's old snapshot keeps
# it, ever longer. Then they are made less often, so that they never take a large part of our time.
SHARE = 20  # times as long as it took is the pause until the next
LONGEST = 2.0  # seconds
HELD_REST_S = 0.25  # seconds between claims from a queue in which breakers are open, if it is vain
HELD_SHARE = 100  # the same, as in SHARE: such a claim walks over all jobs that are held back
MOST_NAMED = 1000  # queues of a worker that are asked for by name
# Many queues that hold few jobs each are asked together: a round trip each would cost the most.
ONE_BY_ONE = 4  # queues in line that are still asked one by one
MOST_TOGETHER = 100  # queues
HELD_CLAIM_S = 0.1  # seconds that a claim from queues with open breakers should take at most
DENSE = 3  # full answers in a row after which a queue is asked alone, for as much as there is room


class Lookout:
    def __init__(self, queues: Collection[str] | None, settings: WorkerSettings) -> None:
        self._queues = None if queues is None else frozenset(queues)
        self._settings = settings
        self.held: Mapping[str, frozenset[str]] = {}  # tasks that breakers hold back, by queue
        self._turns = QueueTurns(settings.poll_min, settings.poll_max)
        self._troubled: dict[str, Backoff] = {}  # queues whose claims fail
        self._places: dict[str, tuple[Place, float]] = {}  # where to go on, and until when
        self._full: dict[str, int] = {}  # full answers of a queue in a row
        self._apart = 0  # turns for which queues are asked one by one
        self._held_together = MOST_TOGETHER  # queues with open breakers that are asked together
        self._idle = settings.poll_min
        self._look_at = 0.0
        self._rest_look_at = 0.0  # not before: looks are at most half of an idle worker's time
        self._busy_look_at = 0.0  # not before, while some queue keeps us busy

    def serves(self, queue: str) -> bool:
        return self._queues is None or queue in self._queues

    def hear(self, queue: str) -> None:
        """Something is new: in this queue, or ("") somewhere."""
        if queue == "":
            self._look_at = 0.0
        elif self.serves(queue):
            self._turns.heard(queue)
            self._idle = self._settings.poll_min

    def wait(self) -> float:
        """Seconds until it is time to look."""
        at = max(self._look_at, self._busy_look_at if self._turns else self._rest_look_at)
        return max(0.0, at - time.monotonic())

    def pause(self) -> float:
        """Seconds until there is something to do: a look, or a queue that has rested."""
        return min(self.wait(), self._turns.until_rested())

    async def look(self, store: Store) -> Seen:
        """Ask which queues have something; make due jobs ready first, if nobody else has."""
        now = time.monotonic()
        self._idle = min(self._settings.poll_max, self._idle * 2)
        self._look_at = now + self._idle * random.uniform(0.75, 1.25)
        try:
            seen = await self._see(store)
        finally:  # one that failed took its time too
            took = time.monotonic() - now
            self._rest_look_at = time.monotonic() + min(took, self._settings.poll_max)
            self._busy_look_at = _again(BUSY_LOOK, took)
        self._note(seen.queues)
        return seen

    async def _see(self, store: Store) -> Seen:
        return await see(store, self._queues)

    def next(self) -> tuple[str, ...]:
        """Whose turn it is: one queue, or many that hold few jobs each. They are forgotten until
        there is word of them again, so that news which come while we ask are not lost."""
        first = self._turns.next()
        if first is None:
            return ()
        self._apart = max(0, self._apart - 1)
        if self._apart or self._is_dense(first) or len(self._turns) < ONE_BY_ONE:
            return (first,)
        most = self._held_together if first in self.held else MOST_TOGETHER
        return (first, *self._sparse(most - 1, self.held.get(first)))

    def _sparse(self, most: int, held: frozenset[str] | None) -> list[str]:
        """Those next in line that do not want a turn of their own, and in which breakers hold back
        the same tasks: one statement leaves out the same tasks everywhere."""
        together: list[str] = []
        others: list[str] = []
        while len(together) < most and len(others) < most:
            if (queue := self._turns.next()) is None:
                break
            fits = self.held.get(queue) == held and not self._is_dense(queue)
            (together if fits else others).append(queue)
        self._turns.put_back(others)
        return together

    def _is_dense(self, queue: str) -> bool:
        return queue in self._places or self._full.get(queue, 0) >= DENSE

    def place(self, queue: str) -> Place | None:
        """Where to go on in a queue that keeps us busy. What comes to stand before it since (a
        higher priority, a retry) is found from the head, a moment later."""
        place, until = self._places.get(queue, (None, 0.0))
        return place if time.monotonic() < until else None

    def claimed(self, wanted: Wanted, claims: Sequence[Claim], took: float = 0.0) -> None:
        """What we got there, in so many seconds: as much as we had room for means that there may be
        more."""
        if wanted.queue in self.held:
            self._adapt(len(wanted.queues), took)
        if wanted.others:
            self._claimed_across(wanted, claims)
        else:
            self._note_place(wanted, claims, took)
            self._note_answer(wanted.queue, len(claims), wanted.limit, whole=wanted.place is None)
        if claims:
            self._idle = self._settings.poll_min
            self._look_at = min(self._look_at, time.monotonic() + self._idle)

    def _adapt(self, queues: int, took: float) -> None:
        """A claim walks over all jobs that are held back: fewer queues, if these are many."""
        if took > HELD_CLAIM_S:
            self._held_together = max(1, queues // 4)
        elif took < HELD_CLAIM_S / 4:
            self._held_together = min(MOST_TOGETHER, self._held_together * 2)

    def _claimed_across(self, wanted: Wanted, claims: Sequence[Claim]) -> None:
        """Queues are asked in their order until there are enough jobs: those after the last that
        gave one were not asked then."""
        gave = Counter(claim.queue for claim in claims)
        asked = wanted.queues
        if len(claims) >= wanted.limit:
            last = max((n for n, queue in enumerate(asked) if queue in gave), default=len(asked))
            self._turns.put_back(asked[last + 1 :])
            asked = asked[: last + 1]
        for queue in asked:
            self._note_answer(queue, gave[queue], wanted.each)

    def _note_answer(self, queue: str, number: int, limit: int, *, whole: bool = True) -> None:
        """`whole`: it was asked from its head."""
        self._troubled.pop(queue, None)
        if number:
            self._turns.gave(queue)
        elif whole:
            self._turns.gave_nothing(queue)
        if number >= limit:
            self._full[queue] = self._full.get(queue, 0) + 1
        else:
            self._full.pop(queue, None)
        if number >= limit or not whole:
            self._turns.found(queue)

    def _note_place(self, wanted: Wanted, claims: Sequence[Claim], took: float) -> None:
        _, until = self._places.pop(wanted.queue, (None, 0.0))
        if wanted.place is None:
            until = _again(SAME_PLACE, took)
        if len(claims) == wanted.limit and claims[0].priority == claims[-1].priority:
            first = claims[0]
            self._places[wanted.queue] = Place(first.priority, first.run_at, first.id), until

    def failed(self, wanted: Wanted) -> None:
        """It could not be asked. It rests for a while: its trouble is not the other queues'. Many
        that were asked together are asked one by one, to find the one in trouble."""
        if wanted.others:
            self._turns.put_back(wanted.queues)
            self._apart = len(wanted.queues) + 1
            return
        backoff = self._troubled.setdefault(wanted.queue, Backoff())
        self.rest(wanted.queue, backoff.failed())

    def not_asked(self, wanted: Wanted) -> None:
        """The database was away: they are first again."""
        self._turns.put_back(wanted.queues)

    def rest_held(self, queues: Sequence[str], took: float = 0.0) -> None:
        """Breakers may hold back all that they have, and to ask again costs as much as this did."""
        for queue in queues:
            self.rest(queue, max(HELD_REST_S, min(LONGEST, HELD_SHARE * took)))

    def reopen(self, queue: str) -> None:
        """A breaker has closed: whatever rest there was is over."""
        if self.serves(queue):
            self._turns.gave(queue)
            self.hear(queue)

    def rest(self, queue: str, seconds: float) -> None:
        """Leave a queue alone for so long, whatever the news."""
        self._turns.rest(queue, seconds)

    def _note(self, queues: Collection[str]) -> None:
        ours = queues if self._queues is None else self._queues.intersection(queues)
        for queue in ours:
            self._turns.found(queue)
        self._turns.forget_all_but(set(ours))


async def see(store: Store, queues: Collection[str] | None = None) -> Seen:
    """Which queues have something, of all or of these; due jobs are made ready first. Few queues
    are looked up by name: other queues, however many, cost nothing."""
    few = queues is not None and len(queues) <= MOST_NAMED
    ask = partial(look_among, sorted(queues)) if few and queues is not None else look
    seen: Seen = await store.arun(ask)
    if seen.due:
        await store.arun(promote)
        seen = await store.arun(ask)
    return seen


def _again(pause: float, took: float) -> float:
    """When to do again what has just been done, and took so long."""
    return time.monotonic() + max(pause, min(LONGEST, SHARE * took))
