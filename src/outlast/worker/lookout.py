"""Where there may be something to claim, and when to look.

News name a queue; between news a worker looks for itself, often at first, then calmer. News only
make it faster: every queue that has something is found by looking.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Sequence

from ..model.job import Claim
from ..model.settings import WorkerSettings
from ..ops.claim import Place, Seen, Wanted, look, promote, turns
from ..store import Store
from .loops import Backoff

SAME_PLACE = 0.5  # seconds before a queue is asked from its head again
BUSY_LOOK = 0.1  # seconds between looks while some queue keeps us busy: the others must not starve
# Both walk over what the index keeps of jobs that were taken: while somebody's old snapshot keeps
# it, ever longer. Then they are made less often, so that they never take a large part of our time.
SHARE = 20  # times as long as it took is the pause until the next
LONGEST = 2.0  # seconds


class Lookout:
    def __init__(self, queues: Collection[str] | None, settings: WorkerSettings) -> None:
        self._queues = queues
        self._settings = settings
        self._busy: set[str] = set()  # queues that are believed to hold something for us
        self._troubled: dict[str, tuple[Backoff, float]] = {}  # those that fail, and until when
        self._last: str | None = None  # the queue that had its turn
        self._places: dict[str, tuple[Place, float]] = {}  # where to go on, and until when
        self._idle = settings.poll_min
        self._look_at = 0.0
        self._busy_look_at = 0.0  # not before, while some queue keeps us busy

    def serves(self, queue: str) -> bool:
        return self._queues is None or queue in self._queues

    def hear(self, queue: str) -> None:
        """Something is new: in this queue, or ("") somewhere."""
        if queue == "":
            self._look_at = 0.0
        elif self.serves(queue):
            self._busy.add(queue)
            self._idle = self._settings.poll_min

    def wait(self) -> float:
        """Seconds until it is time to look."""
        at = max(self._look_at, self._busy_look_at) if self._open() else self._look_at
        return max(0.0, at - time.monotonic())

    async def look(self, store: Store) -> None:
        """Ask which queues have something; make due jobs ready first, if nobody else has."""
        now = time.monotonic()
        self._idle = min(self._settings.poll_max, self._idle * 2)
        self._look_at = now + self._idle * random.uniform(0.75, 1.25)
        try:
            seen = await self._see(store)
        finally:  # one that failed took its time too
            self._busy_look_at = _again(BUSY_LOOK, time.monotonic() - now)
        self._note(seen.queues)

    async def _see(self, store: Store) -> Seen:
        seen = await store.arun(look)
        if seen.due:
            await store.arun(promote)
            seen = await store.arun(look)
        return seen

    def next(self) -> str | None:
        """Whose turn it is. It is forgotten until there is word of it again, so that news which
        come while we ask are not lost."""
        if not (queues := self._open()):
            return None
        self._last = turns(queues, self._last)[0]
        self._busy.discard(self._last)
        return self._last

    def place(self, queue: str) -> Place | None:
        """Where to go on in a queue that keeps us busy. What comes to stand before it since (a
        higher priority, a retry) is found from the head, a moment later."""
        place, until = self._places.get(queue, (None, 0.0))
        return place if time.monotonic() < until else None

    def claimed(self, wanted: Wanted, claims: Sequence[Claim], took: float = 0.0) -> None:
        """What we got there, in so many seconds: as much as we had room for means that there may be
        more."""
        self._troubled.pop(wanted.queue, None)
        self._note_place(wanted, claims, took)
        if len(claims) >= wanted.limit or wanted.place is not None:
            self._busy.add(wanted.queue)
        if claims:
            self._idle = self._settings.poll_min
            self._look_at = min(self._look_at, time.monotonic() + self._idle)

    def _note_place(self, wanted: Wanted, claims: Sequence[Claim], took: float) -> None:
        _, until = self._places.pop(wanted.queue, (None, 0.0))
        if wanted.place is None:
            until = _again(SAME_PLACE, took)
        if len(claims) == wanted.limit and claims[0].priority == claims[-1].priority:
            first = claims[0]
            self._places[wanted.queue] = Place(first.priority, first.run_at, first.id), until

    def failed(self, queue: str) -> None:
        """It could not be asked. It rests for a while: its trouble is not the other queues'."""
        self._busy.add(queue)
        backoff, _ = self._troubled.get(queue, (Backoff(), 0.0))
        self._troubled[queue] = (backoff, time.monotonic() + backoff.failed())

    def _open(self) -> set[str]:
        """Queues that may be asked now."""
        if not self._troubled:
            return self._busy
        now = time.monotonic()
        return self._busy - {queue for queue, (_, until) in self._troubled.items() if until > now}

    def _note(self, queues: Iterable[str]) -> None:
        self._busy |= {queue for queue in queues if self.serves(queue)}


def _again(pause: float, took: float) -> float:
    """When to do again what has just been done, and took so long."""
    return time.monotonic() + max(pause, min(LONGEST, SHARE * took))
