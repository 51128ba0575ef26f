"""Open circuit breakers, as shown to people. Read only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ..model.breaker import Circuit
from ..model.humanize import format_duration
from ..model.timestamps import to_datetime
from .operation import Op, Row, Rows, Statement


@dataclass(frozen=True, slots=True)
class BreakerState:
    """An open breaker, for people."""

    queue: str
    task: str
    kind: str  # the type of the error that opened it
    message: str  # of the latest error
    opened_by: str
    opened_at: datetime
    open_for: float  # seconds
    probes: int  # made so far
    next_probe: float  # seconds until the next probe; 0: now
    probing: bool  # a probe is running

    @property
    def reason(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind

    @property
    def probe_in_words(self) -> str:
        if self.probing:
            return "a probe is under way"
        if self.next_probe <= 0:
            return "the next probe is due now"
        return f"the next probe is in {format_duration(self.next_probe)}"


def breakers() -> Op[list[BreakerState]]:
    """Every open breaker."""
    rows: Rows = yield Statement("breakers")
    return [_state(row) for row in rows]


def breaker_of(found: Sequence[BreakerState], circuit: Circuit) -> BreakerState | None:
    return next((one for one in found if (one.queue, one.task) == circuit), None)


def _state(row: Row) -> BreakerState:
    queue, task, kind, message, by, opened_at, open_for, probes, next_probe, probing = row
    at = to_datetime(opened_at)
    assert at is not None
    left = max(0.0, float(next_probe))
    return BreakerState(
        queue, task, kind, message, by, at, float(open_for), int(probes), left, bool(probing)
    )
