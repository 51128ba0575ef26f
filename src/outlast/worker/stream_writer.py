"""Stream writer: stores the output that handlers stream, before their outcomes.

A step stores the output so far in its own transaction; the writer sends it again, which changes
nothing, and notifies readers.

    handler ─▶ buffer ─ the interval is over, or the attempt ends ─▶ row ─▶ database
                └ database unavailable: chunks gather here, and no more rows are created

Rows have a transaction of their own: it locks jobs in the order of their ids, as renewals do.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from ..model.claim import Claim, ClaimEvent
from ..model.stream import STREAM
from ..ops.streams import store_stream
from ..store import Store
from .row_errors import RowSuspicion, is_away, is_busy
from .stream_buffers import StreamBuffers

MAX_ROWS = 100  # in one transaction: at most 6.4 MB


class StreamWriter:
    """Writes rows of streamed output. `holds` returns whether a claim is in flight, `number` the
    next row number, `channel` where to notify readers; `on_drop` receives a row that cannot be
    stored."""

    def __init__(
        self,
        store: Store,
        holds: Callable[[Claim], bool],
        number: Callable[[], int],
        channel: Callable[[list[ClaimEvent]], str],
        on_drop: Callable[[ClaimEvent, Exception], None],
    ) -> None:
        self._store = store
        self._number = number
        self._channel = channel
        self._on_drop = on_drop
        self._limit = store.settings.stream_limit
        self._buffers = StreamBuffers(self._limit, holds, self._seal)
        self._rows: deque[ClaimEvent] = deque()
        self._suspicion = RowSuspicion()

    def __len__(self) -> int:
        """The number of writes that are due."""
        return len(self._rows) + (self._buffers.due_in() <= 0.0)

    def due_in(self) -> float:
        """Seconds until output is due; infinite if none waits."""
        return self._buffers.due_in()

    def add(self, claim: Claim, data: str, n: int | None) -> bool:
        """From any thread: add a chunk of a handler, or a row that another process has numbered.
        Returns whether to wake the writer."""
        if n is None:
            return self._buffers.add(claim, data)
        self._rows.append(_row(claim, n, data, first=True))
        return True

    def end(self, claim: Claim) -> None:
        """Make rows of the last chunks of an ended attempt, for the next write."""
        self._buffers.seal_all(claim, last=True)

    def pending(self, claim: Claim) -> list[ClaimEvent]:
        """From any thread: rows of a claim that may not be stored yet, for its own transaction. The
        writer stores them too; each is kept once."""
        self._buffers.seal_all(claim)
        return [
            row
            for row in tuple(self._rows)
            if (row["job"], row["fence"], row["worker"]) == claim.claim_key
        ]

    def _seal(self, claim: Claim, data: str, first: bool) -> None:
        self._rows.append(_row(claim, self._number(), data, first))

    async def flush(self) -> None:
        """Store all due rows. Rows that could not be stored stay, in their order."""
        if not self._rows:
            self._buffers.seal_due()
        while self._rows:
            rows = list(itertools.islice(self._rows, MAX_ROWS))
            stored = await self._store_rows(rows)
            for _ in range(stored):
                self._rows.popleft()

    async def _store_rows(self, rows: list[ClaimEvent]) -> int:
        """Store rows; returns the number. If a row may have caused a failure, store only the
        first."""
        try:
            await self._write(rows)
        except Exception as error:
            if not self._suspicion.blames_row(error):
                raise
        else:
            self._suspicion.clear()
            return len(rows)
        try:
            await self._write(rows[:1])
        except Exception as error:
            if is_away(error) or is_busy(error):
                raise
            self._on_drop(rows[0], error)
        return 1

    async def _write(self, rows: list[ClaimEvent]) -> None:
        await self._store.arun(store_stream, rows, self._limit, self._channel(rows))


def _row(claim: Claim, n: int, data: str, first: bool) -> ClaimEvent:
    row = claim.event_row(STREAM, data, n)
    row["first"] = first
    return row
