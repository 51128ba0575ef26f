"""Uniqueness: at most one job of a key at a time, once per period, or the last of many calls.

    using(key="inbox-7", unique="waiting")    one that is still to start
    using(key="inbox-7", unique="active")     one that has not ended
    using(key="inbox-7", unique="10m")        one in ten minutes, counted from the last one made
    using(key="doc-7", debounce=5, max_wait=60)   one, five seconds after the last call

Each key has one row that names its holder, the last job inserted under it. The holder's own row
shows whether it still blocks others; it is read when the next call arrives, and not stored: a job
that is released, retried or reclaimed needs no permission to return to its queue.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .errors import InvalidOption
from .humanize import duration_seconds
from .retry import MAX_DELAY_S
from .timestamps import is_finite

if TYPE_CHECKING:
    from .job import NewJob
    from .options import Options

WAITING, ACTIVE, PERIOD, DEBOUNCE = "waiting", "active", "period", "debounce"
MODES = (WAITING, ACTIVE, PERIOD, DEBOUNCE)


def check_uniqueness(options: Options) -> None:
    """Refuse values that are invalid on their own; a key may still be added."""
    if options.unique is not None:
        _period(options.unique)
    wait = _span("debounce", options.debounce)
    limit = _span("max_wait", options.max_wait)
    if limit is not None and wait is not None and limit < wait:
        raise InvalidOption(
            option="max_wait", reason=f"must be at least debounce, which is {wait:g} s"
        )


def unique_fields(options: Options) -> dict[str, object]:
    """The uniqueness fields of a new job; none for a plain one."""
    if options.debounce is None and options.max_wait is not None:
        raise InvalidOption(option="max_wait", reason="needs debounce=…")
    if options.unique is None and options.debounce is None:
        return {}
    given = "unique" if options.debounce is None else "debounce"
    if options.key is None:
        raise InvalidOption(option=given, reason="needs key=…: one job of that key")
    if options.debounce is None:
        period = _period(options.unique)
        mode = PERIOD if period is not None else options.unique
        return {"unique_mode": mode, "unique_span": period}
    if options.unique is not None:
        raise InvalidOption(option="unique", reason="cannot be given together with debounce")
    if options.delay is not None or options.at is not None:
        raise InvalidOption(option="debounce", reason="cannot be given together with delay or at")
    wait = _span("debounce", options.debounce)
    limit = _span("max_wait", options.max_wait)
    return {"unique_mode": DEBOUNCE, "unique_span": wait, "max_wait": limit, "delay": wait}


def check_unique_job(job: NewJob) -> None:
    """Refuse a unique job that is part of a flow, or that arrives malformed from another
    process."""
    if job.unique_mode is None:
        return
    option = "debounce" if job.unique_mode == DEBOUNCE else "unique"
    if job.unique_mode not in MODES or job.key is None:
        raise InvalidOption(option="unique", reason="needs a known mode and a key")
    if (job.unique_mode in (PERIOD, DEBOUNCE)) != (job.unique_span is not None):
        raise InvalidOption(option=option, reason="needs the duration of its mode")
    _span(option, job.unique_span)
    _span("max_wait", job.max_wait)
    if job.after or job.flow or job.team or job.unit or job.sibling_of:
        raise InvalidOption(
            option=option,
            reason="cannot be used inside flows, groups and chains, nor with after=… or join=True:"
            " another call's job may hold the key. Enqueue it by itself, or use key=… alone",
        )


def _period(unique: object) -> float | None:
    """The seconds of a period; None for a named mode."""
    if unique in (WAITING, ACTIVE):
        return None
    seconds = duration_seconds(unique) if isinstance(unique, str) else unique
    if seconds is None:
        raise InvalidOption(
            option="unique",
            reason=f"must be 'waiting', 'active' or a period such as '10m', not {unique!r:.80}",
        )
    return _span("unique", seconds)


def _span(name: str, value: Any) -> float | None:
    """A positive duration in seconds."""
    if isinstance(value, str):
        value = duration_seconds(value) or value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None:
        return None
    if not is_finite(value) or not 0 < value <= MAX_DELAY_S:
        raise InvalidOption(
            option=name,
            reason=f"must be a duration above 0 seconds, up to ten years, not {value!r:.80}",
        )
    return float(value)
