"""Outboxes and sources in the database: those that exist, and the latest reports of workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ..model.timestamps import to_datetime
from .operation import Op, Rows, Statement, creates_database

OUTBOX, SOURCE = "outbox", "source"
KEEP_UNSEEN_S = 90 * 86400.0  # seconds without a report after which one is removed


@dataclass(frozen=True, slots=True)
class BridgeReport:
    """A worker's report on an outbox or a source: totals grow by these numbers."""

    kind: str
    name: str
    broker: str
    task: str
    queues: tuple[str, ...]
    received: int = 0
    stored: int = 0  # received for the first time
    undecodable: int = 0
    lag: int | None = None  # None: unknown
    error: str | None = None

    def row(self) -> dict[str, object]:
        return {
            "kind": self.kind, "name": self.name, "broker": self.broker, "task": self.task,
            "queues": json.dumps(self.queues), "received": self.received, "stored": self.stored,
            "undecodable": self.undecodable, "lag": self.lag, "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class BridgeState:
    """An outbox or a source, as stored."""

    kind: str
    name: str
    broker: str
    task: str
    queues: tuple[str, ...]
    received: int
    stored: int
    undecodable: int
    lag: int | None
    error: str | None
    message_at: datetime | None  # when messages were last received
    seen_at: datetime  # when a worker last reported it
    silent_for: float  # seconds since then
    message_ago: float | None = None  # seconds since messages were last received
    counts: dict[str, int] = field(default_factory=dict)  # jobs of its queues, by state
    oldest: float | None = None  # age of the oldest ready one in seconds
    paused: bool = False  # whether one of its queues is
    breakers: list[str] = field(default_factory=list)  # the causes of those open in its queues

    @property
    def duplicates(self) -> int:
        return self.received - self.stored

    def as_json(self) -> dict[str, object]:
        given = {name: getattr(self, name) for name in self.__slots__}
        moments = ("message_at", "seen_at")
        given |= {one: given[one] and given[one].isoformat() for one in moments}
        return {**given, "queues": list(self.queues), "duplicates": self.duplicates}


@creates_database
def report_bridges(reports: Sequence[BridgeReport], *, first: bool = False) -> Op[None]:
    """Store a worker's reports on its outboxes and sources; `first`: at its start."""
    if first:
        yield Statement("prune_bridges", {"keep": KEEP_UNSEEN_S})
    rows = [one.row() for one in sorted(reports, key=lambda one: (one.kind, one.name))]
    yield Statement("report_bridges", rows=rows)


def bridges(kind: str | None = None) -> Op[list[BridgeState]]:
    """The outboxes or sources that workers have announced, by name."""
    rows: Rows = yield Statement("bridges", {"kind": kind})
    found = []
    for row in rows:
        of, name, broker, task, queues, *numbers, lag, error, message_at, seen_at, now = row
        received, stored, undecodable = (int(number) for number in numbers)
        seen = to_datetime(seen_at)
        found.append(
            BridgeState(
                of, name, broker, task, tuple(json.loads(queues)), received, stored, undecodable,
                None if lag is None else int(lag), error, to_datetime(message_at), seen,
                silent_for=max(0.0, float(now) - float(seen_at)),
                message_ago=None if message_at is None else max(0.0, float(now) - message_at),
            )
        )  # fmt: skip
    return found


def room_of(queue: str) -> Op[int | None]:
    """The number of further ready jobs that a queue may hold; None: unlimited."""
    found: Rows = yield Statement("read_room", {"queue": queue})
    if not found or found[0][0] is None:
        return None
    most = int(found[0][0])
    rows: Rows = yield Statement("count_ready", {"queue": queue, "limit": most})
    return most - int(rows[0][0])
