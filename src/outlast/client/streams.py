"""Job output as it is streamed: an iterator over chunks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from ..loops import Backoff
from ..model.errors import JobNotFound
from ..model.stream import StreamChunk, StreamCursor
from ..stream_reader import StreamReader
from .events import TEMPORARY, check_poll
from .faces import Face, finish
from .verb_arguments import job_id

if TYPE_CHECKING:
    from .client import Outlast

DEFAULT_POLL_S = 0.1  # seconds between two polls


class JobStream(Iterator[StreamChunk], AsyncIterator[StreamChunk]):
    """Chunks in order, until the job ends: `for` blocks while there are none, `async for` does not
    block the event loop. Waits out outages of the database."""

    def __init__(self, app: Outlast, job: str, after: str | None, poll: float) -> None:
        check_poll(poll)
        self._app, self._job, self._poll = app, job, poll
        self._cursor = StreamCursor() if after is None else StreamCursor.parse(after)
        self._stopped = threading.Event()
        self._chunks: AsyncIterator[StreamChunk] | None = None

    def stop(self) -> None:
        """End the iteration, from any thread: at once, or within `poll` seconds (five while the
        database is unavailable)."""
        self._stopped.set()

    def __next__(self) -> StreamChunk:
        if self._chunks is None:
            self._chunks = self._read(self._app._blocking)
        try:
            return finish(self._chunks.__anext__())  # type: ignore[arg-type]
        except StopAsyncIteration:
            raise StopIteration from None

    async def __anext__(self) -> StreamChunk:
        if self._chunks is None:
            self._chunks = self._read(self._app._async)
        return await self._chunks.__anext__()

    async def _read(self, face: Face) -> AsyncIterator[StreamChunk]:
        reader = StreamReader(face.run, self._job, self._cursor)
        backoff, found = Backoff(first=self._poll, cap=5.0), False
        while not self._stopped.is_set():
            try:
                batch = await reader.read()
            except TEMPORARY:
                await face.sleep(backoff.failed())
                continue
            backoff.succeeded()
            if batch.status is None and not found:
                raise JobNotFound(job=self._job)
            found = True
            for chunk in batch.chunks:
                if self._stopped.is_set():
                    return
                yield chunk
            if batch.ended:
                return
            if not batch.more and not self._stopped.is_set():
                await face.sleep(self._poll)


def stream(
    self: Outlast, id: str, *, after: str | None = None, poll: float = DEFAULT_POLL_S
) -> JobStream:
    """Read the output that a job streams with `ctx.stream`, from its beginning or `after` a chunk's
    id, until the job ends: `for chunk in ol.stream(id)` or `async for chunk in ol.stream(id)`.
    `stop()` ends the iteration."""
    return JobStream(self, job_id(id), after, poll)


def astream(
    self: Outlast, id: str, *, after: str | None = None, poll: float = DEFAULT_POLL_S
) -> JobStream:
    return JobStream(self, job_id(id), after, poll)
