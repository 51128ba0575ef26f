"""Stream reader: the output of one job for one reader, page by page; see `model.stream`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .live_event_reader import RunAsync
from .model.lifecycle import State
from .model.stream import StreamChunk, StreamCursor, StreamRow, chunks_after, started_chunk
from .model.worker_names import is_offer
from .ops.events import JobStatus
from .ops.streams import StreamPage, stream_page


class StreamBatch(NamedTuple):
    """The chunks that one pass found."""

    chunks: list[StreamChunk]
    status: JobStatus | None  # None: there is no such job
    more: bool = False
    ended: bool = False  # the stream is complete


class StreamReader:
    """Reads page by page, each from where the last one ended."""

    def __init__(
        self, run: RunAsync, job: str, cursor: StreamCursor, tenant: str | None = None
    ) -> None:
        self.cursor = cursor
        self._run = run
        self._job, self._tenant = job, tenant

    async def read(self) -> StreamBatch:
        return self.take(await self._run(stream_page, self._job, self.cursor, self._tenant))

    def take(self, page: StreamPage) -> StreamBatch:
        """The chunks of a page that begins at the reader's position, or before."""
        status = page.status
        if status is not None and self.cursor.fence > status.fence:
            self.cursor = StreamCursor()  # from another history: a backup was restored
            return StreamBatch([], status, more=True)
        chunks = list(chunks_after(self.cursor, page.rows))
        self._advance(chunks, page.rows)
        if status is None:
            return StreamBatch(chunks, None, ended=True)
        if page.more:
            return StreamBatch(chunks, status, more=True)
        if is_started(status) and status.fence > self.cursor.fence:
            chunks.append(started_chunk(status.fence, status.attempt))
            self._advance(chunks)
        return StreamBatch(chunks, status, ended=status.final)

    def _advance(self, chunks: Sequence[StreamChunk], rows: Sequence[StreamRow] = ()) -> None:
        """Advance to the last chunk, or beyond it to the last row: remote workers' rows may be
        empty."""
        if chunks:
            self.cursor = StreamCursor.parse(chunks[-1].id)
        if rows:
            self.cursor = max(self.cursor, StreamCursor(rows[-1].fence, rows[-1].n))


def is_started(status: JobStatus) -> bool:
    """Whether a handler runs; a job that is only offered to a remote worker has none."""
    return status.state == State.RUNNING and not is_offer(status.worker)
