"""Live events: starts and first-try successes of all jobs, read from the job rows by watchers.

A job that succeeds at its first attempt writes no event, so that jobs without watchers pay nothing.
A watcher reads the rows: successes through the index of finished jobs, page by page, in the order
of their ends; starts from running rows.

    ends     ──a──b─────c──d──┬── SETTLE_S ──▶ now
    read     ──────────────▶  │   later ends are not read yet: late commits may precede them
                              └── read up to here: in one order, the same for every reader

Each success is read once, shortly after its end, and a stream can resume after it. A start is
reported when it is first seen: several attempts between two reads appear as one, or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ..model.errors import InvalidOption
from ..model.job import lenient_json
from ..model.timestamps import to_datetime
from .audit import LOWEST_ID
from .event_filter import STARTED
from .events import StoredEvent
from .operation import Op, Rows, Statement

SETTLE_S = 1.0  # seconds between a success and its report: other ends may commit late
PAGE_SIZE = 500
MAX_STARTED = 5_000  # jobs that started between two reads
CURSOR_PATTERN = r"[0-9]{1,18}(-[0-9]{1,12}\.[0-9]{1,9}-[0-9a-f-]{36})?(-end)?"


class LiveCursor(NamedTuple):
    """The position of a watcher: stored events by position, successes by their end."""

    position: int
    ended_at: float | None = None  # None: no successes were read
    job: str = LOWEST_ID

    @classmethod
    def parse(cls, text: str) -> LiveCursor:
        if not isinstance(text, str) or not re.fullmatch(CURSOR_PATTERN, text):
            reason = f"must be the id of an event, not {text!r:.80}"
            raise InvalidOption(option="after", reason=reason)
        position, _, rest = text.removesuffix("-end").partition("-")
        ended_at, _, job = rest.partition("-")
        return cls(int(position), float(ended_at), job) if rest else cls(int(position))

    def __str__(self) -> str:
        if self.ended_at is None:
            return str(self.position)
        return f"{self.position}-{self.ended_at!r}-{self.job}"


class LiveJob(NamedTuple):
    """A job that has started, or has succeeded."""

    id: str
    attempt: int
    fence: int
    worker: str | None
    started_at: float | None
    finished_at: float | None
    tenant: str
    queue: str
    task: str
    flow: str | None

    def event(self, kind: str) -> StoredEvent:
        at = self.started_at if kind == STARTED else self.finished_at
        return StoredEvent(
            0, self.id, self.attempt, self.fence, kind, None, at or 0.0,
            self.tenant, self.queue, self.task, self.flow,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event of a job, or of no job (a paused queue, a lost worker). A stream cannot resume after
    an event without an `id`."""

    id: str | None
    kind: str
    job: str | None
    attempt: int | None
    fence: int | None
    at: datetime | None
    queue: str | None
    task: str | None
    tenant: str | None
    flow: str | None
    data: Any

    @classmethod
    def of(cls, event: StoredEvent, id: str | None, data: object = None) -> LiveEvent:
        payload = data if event.data is None else lenient_json(event.data)
        return cls(
            id, event.kind, event.job, event.attempt, event.fence, to_datetime(event.at),
            event.queue, event.task, event.tenant, event.flow, payload,
        )  # fmt: skip


def clock() -> Op[float]:
    rows: Rows = yield Statement("live_clock")
    return float(rows[0][0])


def succeeded_after(
    cursor: LiveCursor, flow: str | None, limit: int = PAGE_SIZE
) -> Op[list[LiveJob]]:
    """The next successes, of one flow or of all jobs, in the order of their ends, up to SETTLE_S
    ago."""
    asked = {"at": cursor.ended_at, "job": cursor.job, "settle": SETTLE_S, "limit": limit}
    if flow is None:
        rows: Rows = yield Statement("succeeded_after", asked)
    else:
        rows = yield Statement("succeeded_in_flow", {**asked, "flow": flow})
    return [LiveJob._make(row) for row in rows]


def started_since(at: float, tenant: str | None, flow: str | None) -> Op[list[LiveJob]]:
    asked = {"at": at, "tenant": tenant, "flow": flow, "limit": MAX_STARTED}
    rows: Rows = yield Statement("started_since", asked)
    return sorted((LiveJob._make(row) for row in rows), key=lambda job: job.started_at or 0.0)
