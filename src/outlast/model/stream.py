"""The output that a job streams: chunks of text or JSON, kept apart by claim.

A worker stores chunks in rows, numbered under its claim. A reader's position is
the claim's fence, the row's number and the chunk's place in the row. Only the owner of a claim
writes, and a later claim has a higher fence: so positions become visible in order, and a reader
that resumes after one misses nothing and reads nothing twice.

    fence 3   mark 0   row 1 ["Hel", {"tool": …}]   row 4 ["lo"]  ┊ killed
    fence 4   mark 0   row 1 ["Hello"]   row 2 […]                ┊ ended
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from .errors import InvalidOption
from .job import lenient_json
from .safe_text import storable_text
from .timestamps import to_datetime

STREAM = "stream"  # the kind under which chunks travel with the events of a handler
MAX_CHUNK_BYTES = 32_000  # of one JSON value; longer text is split
MAX_ROW_BYTES = 64_000  # of the chunks that are stored together
MAX_ROW_NUMBER = 10**18 - 1  # of stored rows, which begin with 1
CURSOR_PATTERN = r"[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,9}(-end)?"

ChunkKind = Literal["text", "json", "attempt", "truncated"]


class StreamCursor(NamedTuple):
    """The position of a reader: it has all chunks up to here."""

    fence: int = 0
    n: int = 0  # 0: the mark at the claim's beginning
    item: int = 0  # chunks of that row

    @classmethod
    def parse(cls, text: str) -> StreamCursor:
        if not isinstance(text, str) or not re.fullmatch(CURSOR_PATTERN, text):
            reason = f"must be the id of a chunk, not {text!r:.80}"
            raise InvalidOption(option="after", reason=reason)
        return cls(*map(int, text.removesuffix("-end").split("-")))

    def __str__(self) -> str:
        return f"{self.fence}-{self.n}-{self.item}"


class StreamRow(NamedTuple):
    """Chunks that were stored together."""

    fence: int
    n: int
    attempt: int
    data: str | None  # a JSON array; None: the output is cut off here
    at: float


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A chunk of a job's output: `text` or `json`. `attempt`: the handler starts (again) here.
    `truncated`: the job's output has reached its limit, and the rest was dropped."""

    id: str  # a reader resumes after it
    kind: ChunkKind
    attempt: int
    fence: int
    data: Any
    at: datetime | None

    @property
    def text(self) -> str:
        """The text of a text chunk; empty for others."""
        return self.data if self.kind == "text" else ""


def encode_chunk(chunk: object) -> list[str]:
    """A chunk as JSON text: several, if it is a long text."""
    if isinstance(chunk, str):
        return [json.dumps(part) for part in _split(storable_text(chunk, len(chunk) * 6 + 1))]
    try:
        text = json.dumps(chunk, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(
            option="stream", reason=f"takes text or JSON: {type(error).__name__}: {error}"
        ) from None
    if len(text) > MAX_CHUNK_BYTES:
        reason = f"takes JSON of at most {MAX_CHUNK_BYTES:,} bytes, not {len(text):,}: stream parts"
        raise InvalidOption(option="stream", reason=reason)
    if "\\u0000" in text:
        reason = "cannot store NUL characters: remove them from the value"
        raise InvalidOption(option="stream", reason=reason)
    return [text]


def _split(text: str) -> Iterator[str]:
    step = MAX_CHUNK_BYTES // 12  # JSON takes up to 12 bytes for a character
    if len(text) <= step:
        if text:
            yield text
        return
    for start in range(0, len(text), step):
        yield text[start : start + step]


def started_chunk(fence: int, attempt: int) -> StreamChunk:
    """The mark of a claim: before its first chunk, or when it is first seen running. It has no
    time, so that it is the same for every reader."""
    return StreamChunk(str(StreamCursor(fence)), "attempt", attempt, fence, None, None)


def chunks_after(cursor: StreamCursor, rows: Iterable[StreamRow]) -> Iterator[StreamChunk]:
    """The chunks of these rows that come after a reader's position, with a mark where another claim
    begins."""
    fence = cursor.fence
    for row in rows:
        if row.fence > fence:
            fence = row.fence
            yield started_chunk(fence, row.attempt)
        had = cursor.item if (row.fence, row.n) == (cursor.fence, cursor.n) else 0
        yield from _chunks(row, had)


def _chunks(row: StreamRow, had: int) -> Iterator[StreamChunk]:
    items = None if row.data is None else lenient_json(row.data)
    at = to_datetime(row.at)
    for index, item in enumerate([None] if items is None else items, 1):
        if index > had:
            kind: ChunkKind = "text" if isinstance(item, str) else "json"
            if row.data is None:
                kind = "truncated"
            id = str(StreamCursor(row.fence, row.n, index))
            yield StreamChunk(id, kind, row.attempt, row.fence, item, at)
