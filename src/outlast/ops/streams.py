"""The output that jobs stream: stored while the claim holds, read in the order of positions.

It has a table of its own beside the events. An event gets its position after its commit, by a
second write, because many transactions write events. Only the owner of a claim writes its output,
so the claim's fence and a number are a position, and followers of all events do not read a model's
tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model.claim import ClaimEvent
from ..model.stream import StreamCursor, StreamRow
from .events import JobStatus, job_status
from .operation import Op, Pipeline, Rows, Statement

PAGE_ROWS = 200


class StreamPage(NamedTuple):
    """The state of a job, and the rows stored by then. Without a job the state is None."""

    status: JobStatus | None
    rows: list[StreamRow]
    more: bool  # there may be more rows already


def store_stream(rows: Sequence[ClaimEvent], limit: int, channel: str = "") -> Op[int]:
    """Store output of claims that still hold, in one round trip. Readers are notified on
    `channel`."""
    statements = stream_statements(rows, limit)
    if channel:
        statements.append(Statement("notify_workers", {"channel": channel, "queues": '[""]'}))
    answers = yield Pipeline(statements)
    return len(answers[-2 if channel else -1])


def stream_statements(rows: Sequence[ClaimEvent], limit: int) -> list[Statement]:
    """Statements that store output. Events are numbered from 0, stored rows from 1: 0 marks the
    claim."""
    ids = json.dumps(sorted({row["job"] for row in rows}))
    given = [{**row, "n": row["n"] + 1, "size": len(row["data"])} for row in rows]
    storing = Statement("store_stream", {"ids": ids, "limit": limit}, given)
    starting = [row for row in rows if row.get("first") and row["fence"] > 1]
    if not starting:
        return [storing]
    return [Statement("drop_earlier_stream", {"limit": limit}, starting), storing]


def stream_page(
    id: str, cursor: StreamCursor, tenant: str | None = None, limit: int = PAGE_ROWS
) -> Op[StreamPage]:
    """A page of a job's output. The state is read first: when a job has ended, all of its output
    has been stored. (An archived job has none.)"""
    asked = {"id": id, "fence": cursor.fence, "n": cursor.n, "limit": limit}
    states, rows = yield Pipeline(
        [
            Statement("job_status", {"ids": json.dumps([id]), "tenant": tenant}),
            Statement("stream_after", asked),
        ]
    )
    if not states:
        archived = (yield from job_status([id], tenant)).get(id)
        return StreamPage(archived, [], more=False)
    found = [StreamRow._make(row) for row in rows]
    return StreamPage(JobStatus._make(states[0]), found, len(found) >= limit)


def stream_tail(id: str, limit: int = PAGE_ROWS) -> Op[list[StreamRow]]:
    """The last rows of a job's output, in order."""
    rows: Rows = yield Statement("stream_tail", {"id": id, "limit": limit})
    return [StreamRow._make(row) for row in reversed(rows)]


def streams_after(
    cursors: Mapping[str, StreamCursor], limit: int
) -> Op[list[tuple[str, StreamRow]]]:
    """The next rows of many jobs, in the order of each job."""
    asked = [{"job": job, "fence": c.fence, "n": c.n} for job, c in cursors.items()]
    rows: Rows = yield Statement("streams_after", {"limit": limit}, asked)
    return [(job, StreamRow._make(rest)) for job, *rest in rows]
