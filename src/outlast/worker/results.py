"""What the jobs before a job came to: read a page at a time, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from ..model.job import Job
from ..ops.flow_report import prerequisites
from ..store import Store

PAGE = 200


class Results:
    """Iterable in sync handlers, async-iterable in async ones; each time from the beginning."""

    def __init__(self, store: Store, follower: str, read: Callable[[Job], Any]) -> None:
        self._store = store
        self._follower = follower
        self._read = read

    def __iter__(self) -> Iterator[Any]:
        place = -1
        while page := self._store.run(prerequisites, self._follower, place, PAGE):
            yield from (self._read(job) for _, job in page)
            place = page[-1][0]

    async def __aiter__(self) -> AsyncIterator[Any]:
        place = -1
        while page := await self._store.arun(prerequisites, self._follower, place, PAGE):
            for _, job in page:
                yield self._read(job)
            place = page[-1][0]
