"""Live lists of jobs: each is read every few seconds, once for all viewers.

A read costs one page, regardless of how many jobs start and end. A list that takes long to read is
read less often (see `cached`), and a list without viewers is not read at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from markupsafe import Markup

from ...cached import Cached, Snapshot
from ...model.job import Job

REFRESH_INTERVAL_S = 1.5
READ_WAIT_S = 1.0  # for a new version; after it, the last version is used


@dataclass(slots=True)
class JobList(Snapshot):
    """A page of jobs at one time."""

    jobs: list[Job]
    next: str | None  # the cursor of the next page
    parts: dict[Hashable, Markup] = field(default_factory=dict)  # rendered from it


ReadList = Callable[[], Coroutine[object, object, JobList]]


@dataclass(slots=True)
class _WatchedList:
    cached: Cached[JobList]
    viewers: int = 0


class LiveLists:
    """For one event loop."""

    def __init__(self) -> None:
        self._lists: dict[Hashable, _WatchedList] = {}

    def __len__(self) -> int:
        return len(self._lists)

    @contextmanager
    def watching(self, key: Hashable, read: ReadList) -> Iterator[Cached[JobList]]:
        """The list of this key, kept for the duration of this context."""
        watched = self._lists.get(key)
        if watched is None:
            watched = self._lists[key] = _WatchedList(Cached(read, REFRESH_INTERVAL_S))
        watched.viewers += 1
        try:
            yield watched.cached
        finally:
            watched.viewers -= 1
            if not watched.viewers and self._lists.get(key) is watched:
                del self._lists[key]

    async def changes(
        self, key: Hashable, read: ReadList, keep_alive_s: float
    ) -> AsyncGenerator[JobList | None, None]:
        """The list, then each changed version; None: unchanged."""
        with self.watching(key, read) as cached:
            seen: JobList | None = None
            told_at = time.monotonic()
            while True:
                latest = await cached.latest_within(READ_WAIT_S)
                if latest is not None and (seen is None or latest.jobs != seen.jobs):
                    seen, told_at = latest, time.monotonic()
                    yield latest
                elif time.monotonic() - told_at >= keep_alive_s:
                    told_at = time.monotonic()
                    yield None
                wait = REFRESH_INTERVAL_S if latest is None else latest.fresh_for - latest.age
                await asyncio.sleep(max(0.2, wait))
