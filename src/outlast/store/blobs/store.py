"""Where arguments and results are kept that are too large for a row.

    put the blob ── then write the row that refers to it ── … ── remove the row ── then the blob

Whoever dies on the way leaves a blob that no row refers to, and never a row that refers to nothing.
Such blobs are swept, by a duty, once they are older than any transaction could be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable
from urllib.parse import unquote, urlsplit

from ...model.blob import Blob, args_blob, result_blob
from ...model.errors import BlobLost, BlobUnavailable, InvalidOption, StoreBusy
from ...model.job import ClaimKey, NewJob
from ...model.outcome import AttemptEnd
from ...model.safe_text import error_summary
from ...ops import blobs as ops
from ..base import Store
from .files import FileBlobs

log = logging.getLogger("outlast.blobs")

T = TypeVar("T")


@runtime_checkable
class BlobStore(Protocol):
    """What a blob store must do. It is called from several threads at once. Names are of our own
    making, 60 to 100 characters of `0-9a-z./-`. Whatever one of these raises means that the store
    cannot be reached now, and may be later."""

    def put(self, name: str, data: bytes) -> None:
        """Keep it: when this returns, it survives a crash. A name is put once."""

    def get(self, name: str) -> bytes | None:
        """All of it; None if there is none of this name."""

    def delete(self, name: str) -> None:
        """Remove it, if it is there."""

    def names(self, after: str) -> Iterable[tuple[str, float]]:
        """The names that begin with the folder of `after` (all up to its `/`) and sort after it,
        in order, each with its age in seconds by the store's own clock."""


def open_blobs(given: object) -> BlobStore:
    """The blob store that a setting names, or is."""
    if isinstance(given, BlobStore):
        return given
    if not isinstance(given, str):
        reason = f"must be file:///… or have put, get, delete and names, not {given!r:.80}"
        raise InvalidOption(option="blobs", reason=reason)
    url = urlsplit(given)
    if url.scheme != "file" or url.netloc or not unquote(url.path).strip("/"):
        reason = f"must be file:///a/directory, not {given!r:.200}"
        raise InvalidOption(option="blobs", reason=reason)
    return FileBlobs(Path(unquote(url.path)))


class Blobs:
    """The blobs of one database. Every verb here blocks."""

    def __init__(self, store: Store, location: BlobStore) -> None:
        self._store = store
        self.location = location
        self.inline_limit = store.settings.blob_over
        self.limit = store.settings.blob_limit
        self._namespace: str | None = None

    @property
    def namespace(self) -> str:
        if self._namespace is None:
            try:
                self._namespace = self._store.run(ops.blob_namespace)
            except StoreBusy as error:
                raise StoreBusy(
                    reason="this is the first blob of this database, and an open transaction,"
                    " perhaps your own, is in the way: call migrate() before it, when your program"
                    " starts"
                ) from error
        return self._namespace

    # Before the row

    def put_arguments(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """The jobs, of which those with large arguments refer to them."""
        return [
            self._put_arguments(job) if len(job.args) > self.inline_limit else job for job in jobs
        ]

    def any_large(self, jobs: Sequence[NewJob]) -> bool:
        return any(len(job.args) > self.inline_limit for job in jobs)

    def _put_arguments(self, job: NewJob) -> NewJob:
        data = job.args.encode()
        return replace(job, args=self._put(job.id, args_blob(self.namespace, data), data))

    def put_result(self, hold: ClaimKey, text: str | None) -> str | None:
        """A result as its row is to have it."""
        if text is None or len(text) <= self.inline_limit:
            return text
        data = text.encode()
        job, fence, _ = hold
        return self._put(job, result_blob(self.namespace, fence, data), data)

    def put_outcome(self, hold: ClaimKey, ended: AttemptEnd) -> AttemptEnd:
        """How an attempt ended, with what is large in it kept here."""
        result, jobs = self.put_result(hold, ended.result), self.put_arguments(ended.jobs)
        return ended._replace(result=result, jobs=tuple(jobs))

    def has_large(self, ended: AttemptEnd) -> bool:
        """Whether anything of it is to be kept here."""
        texts = (ended.result or "", *(job.args for job in ended.jobs))
        return any(len(text) > self.inline_limit for text in texts)

    def _put(self, job: str, blob: Blob, data: bytes) -> str:
        self._call(lambda: self.location.put(blob.name(job), data))
        return blob.as_text()

    # For whoever wants it

    def text(self, job: str, blob: Blob) -> str:
        """What a job's row refers to."""
        name = blob.name(job)
        data = self._call(lambda: self.location.get(name))
        if data is None:
            raise BlobLost(name=name, reason=f"is not there, and should hold {blob.size:,} bytes")
        if not blob.holds(data):
            reason = f"is not what was stored: {len(data):,} bytes, and not the {blob.size:,} that"
            raise BlobLost(name=name, reason=f"{reason} have the SHA-256 {blob.sha256}")
        return data.decode()

    # After the row

    def remove(self, names: Iterable[str]) -> int:
        """Remove blobs of jobs that are gone; how many are left to the sweep, because the store
        cannot be reached."""
        left = 0
        for name in names:
            try:
                self._call(lambda name=name: self.location.delete(name))  # type: ignore[misc]
            except BlobUnavailable as error:
                left += 1
                log.warning("the blob %s is left to the sweep: %s", name, error)
        return left

    def old(self, grace: float) -> Iterator[str]:
        """The blobs of this database that are older than this."""
        first = f"{self.namespace}/"
        found = self._call(lambda: iter(self.location.names(first)))
        while (one := self._call(lambda: next(found, None))) is not None:
            name, age = one
            if not name.startswith(first):
                break
            if age >= grace:
                yield name

    def _call(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Exception as error:  # whatever a client library raises
            raise BlobUnavailable(reason=error_summary(error)) from error


async def adelete_blobs(blobs: Blobs | None, names: Sequence[str]) -> None:
    """Remove the blobs of rows that are gone; what cannot be reached is left to the sweep."""
    if blobs is not None and names:
        await asyncio.to_thread(blobs.remove, names)
