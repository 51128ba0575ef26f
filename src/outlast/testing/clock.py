"""The clock of a test's store: it moves forward, the machine's clock does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ..model.errors import InvalidOption
from ..model.humanize import duration_seconds
from ..model.options import seconds as checked_seconds
from ..model.timestamps import to_epoch
from ..ops.operation import Op, Rows, Statement
from ..store.moved_clock import movable_clock

if TYPE_CHECKING:
    from ..client.client import Outlast

Span = float | str | timedelta  # seconds, "90s", "1h", or a timedelta


def now(ol: Outlast) -> datetime:
    """The time by which this store's jobs are due: the database's, plus every advance."""
    return datetime.fromtimestamp(ol.store.run(read_clock), UTC)


def advance(ol: Outlast, span: Span) -> datetime:
    """Move the clock of this store forward and return the new time. Nothing is run: `drain` runs
    everything that is due then."""
    movable_clock(ol.store).advance(to_seconds("span", span))
    return now(ol)


def to_seconds(option: str, span: Span) -> float:
    if isinstance(span, str):
        parsed = duration_seconds(span)
        if parsed is None:
            reason = f"must be a duration such as 90, '90s', '5m', '2h' or '1d', not {span!r:.80}"
            raise InvalidOption(option=option, reason=reason)
        span = parsed
    checked = checked_seconds(option, span)
    if checked is None:
        raise InvalidOption(option=option, reason="must be a duration, not None")
    return checked


def to_moment(option: str, value: Span | datetime, clock: float) -> float:
    """A time, or a duration from now, in seconds since 1970."""
    if isinstance(value, datetime):
        moment = to_epoch(option, value)
        assert moment is not None
        return moment
    return clock + to_seconds(option, value)


def read_clock() -> Op[float]:
    """The database's clock, in seconds since 1970."""
    rows: Rows = yield Statement("clock")
    return float(rows[0][0])
