"""Results of a job's prerequisites, read in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from ..model.blob import Blob
from ..model.errors import NoBlobStore
from ..model.job import Job, lenient_json
from ..ops.flow_report import prerequisites
from ..store import OperationRunner
from ..store.blobs.store import Blobs

PAGE_SIZE = 200


class PrerequisiteResults:
    """The prerequisites as jobs, or only their results, each fetched if it is stored by reference.
    Iterable in sync handlers and async-iterable in async ones, each time from the beginning."""

    def __init__(
        self,
        store: OperationRunner,
        follower: str,
        *,
        values: bool = False,
        blobs: Blobs | None = None,
    ) -> None:
        self._store = store
        self._follower = follower
        self._values = values
        self._blobs = blobs

    def __iter__(self) -> Iterator[Any]:
        position = -1
        while page := self._store.run(prerequisites, self._follower, position, PAGE_SIZE):
            for _, job in page:
                yield self._fetched(job) if self._by_reference(job) else self._read(job)
            position = page[-1][0]

    async def __aiter__(self) -> AsyncIterator[Any]:
        position = -1
        while page := await self._store.arun(prerequisites, self._follower, position, PAGE_SIZE):
            for _, job in page:
                if self._by_reference(job):
                    yield await asyncio.to_thread(self._fetched, job)
                else:
                    yield self._read(job)
            position = page[-1][0]

    def _read(self, job: Job) -> Any:
        return job.result if self._values else job

    def _by_reference(self, job: Job) -> bool:
        return self._values and isinstance(job.result, Blob)

    def _fetched(self, job: Job) -> Any:
        if self._blobs is None:
            raise NoBlobStore(job=job.id, bytes=job.result.size)
        return lenient_json(self._blobs.text(job.id, job.result))
