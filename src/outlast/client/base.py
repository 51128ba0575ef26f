"""What every verb has: the store, who acts, and a word to those who work there."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from ..model.arguments import MAX_PAYLOAD
from ..model.blob import Blob
from ..model.errors import BlobError, JobNotFound, NoBlobStore, StoreError
from ..model.job import Job, lenient_json, read_args
from ..ops.bulk import matching
from ..ops.enqueue import CANCEL_SIGNAL, notify_queues
from ..ops.report import Filter
from ..store import Store
from ..store.blobs.store import Blobs, BlobStore, adelete_blobs, open_blobs

ANY_QUEUE = ""  # no queue in particular: look
PAGE_JOBS = 500  # jobs in one transaction, where many are changed


class ClientBase:
    store: Store
    blobs: Blobs | None = None  # where what is too large for a row is kept, if anywhere
    _max_args_bytes = MAX_PAYLOAD  # bytes of one job's arguments

    def _use_blobs(self, location: str | BlobStore | None) -> None:
        if location is not None:
            self.blobs = Blobs(self.store, open_blobs(location))
            self._max_args_bytes = self.blobs.limit

    def _load_blobs(self, job: Job) -> Job:
        """With what it refers to; as it is, if that cannot be had: to look must not fail."""
        if self.blobs is None:
            return job
        with suppress(BlobError):
            if isinstance(job.args, Blob):
                job = replace(job, args=read_args(self.blobs.text(job.id, job.args)))
            if isinstance(job.result, Blob):
                job = replace(job, result=self._value(job.id, job.result))
        return job

    async def _aload_blobs(self, job: Job) -> Job:
        if self.blobs is None or not (isinstance(job.args, Blob) or isinstance(job.result, Blob)):
            return job
        return await asyncio.to_thread(self._load_blobs, job)

    def _value(self, id: str, value: Any) -> Any:
        """A result, or what it refers to."""
        if not isinstance(value, Blob):
            return value
        if self.blobs is None:
            raise NoBlobStore(job=id, bytes=value.size)
        return lenient_json(self.blobs.text(id, value))

    def _delete_blobs(self, names: Sequence[str]) -> None:
        """Remove the blobs of rows that are gone; what cannot be reached is left to the sweep."""
        if self.blobs is not None:
            self.blobs.remove(names)

    async def _adelete_blobs(self, names: Sequence[str]) -> None:
        await adelete_blobs(self.blobs, names)

    def _pages(self, which: Filter) -> Iterator[list[str]]:
        """The ids of all jobs that fit, a page at a time."""
        cursor = None
        while page := self.store.run(matching, which, cursor, PAGE_JOBS):
            yield page
            cursor = page[-1]

    def _notify(self, messages: list[str]) -> None:
        """It only makes things faster, so it may fail."""
        if messages and self.store.can_notify:
            with suppress(StoreError):
                self.store.run(notify_queues, self.store.channel, messages)

    async def _anotify(self, messages: list[str]) -> None:
        if messages and self.store.can_notify:
            with suppress(StoreError):
                await self.store.arun(notify_queues, self.store.channel, messages)

    def _notify_owners(self) -> None:
        """Something that runs should stop, and something may have become ready."""
        self._notify([CANCEL_SIGNAL, ANY_QUEUE])

    async def _anotify_owners(self) -> None:
        await self._anotify([CANCEL_SIGNAL, ANY_QUEUE])


def actor() -> str:
    """Who acts, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


def job_id(id: str) -> str:
    """A job id in its one spelling; anything else names no job."""
    try:
        return str(UUID(str(id)))
    except ValueError:
        raise JobNotFound(f"{id!r:.80} is not a job id", job=id) from None
