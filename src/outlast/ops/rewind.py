"""Rewind schedules after the database's clock was ahead: set each back to the first tick from now
that never fired. Handled ticks are known, so none fires twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..model.fired_ticks import FiredTicks
from ..model.schedule_state import StoredSchedule, next_start
from ..model.ticks import as_key
from .operation import BEGIN, Op, Rows, Statement

REWIND_BATCH = 1000  # schedules in one transaction


def rewind(after: str = "") -> Op[tuple[list[str], str | None]]:
    """Rewind schedules whose names come after one. Returns the names of the rewound ones, and the
    name to continue after, if there may be more."""
    yield BEGIN
    rows: Rows = yield Statement("schedules_ahead", {"after": after, "limit": REWIND_BATCH})
    ahead = [StoredSchedule(*row) for row in rows]
    more = ahead[-1].name if len(ahead) == REWIND_BATCH else None
    wanted = _rewound_rows(ahead)
    done: Rows = (yield Statement("rewind_schedules", rows=wanted)) if wanted else []
    return [name for (name,) in done], more


def _rewound_rows(ahead: Sequence[StoredSchedule]) -> list[dict[str, object]]:
    found = []
    for stored in ahead:
        with suppress(Exception):  # a missing time zone, a damaged row: firing reports it
            found.append(_rewound_row(stored))
    return [row for row in found if row is not None]


def _rewound_row(stored: StoredSchedule) -> dict[str, object] | None:
    """The new columns; None if no unhandled tick comes before the next one."""
    tick = next_start(stored.read_spec(), stored, stored.now)
    if tick is None or (stored.next_at is not None and tick >= stored.next_at):
        return None
    waited = "for ever" if stored.next_at is None else f"until {as_key(stored.next_at)}"
    fired = FiredTicks.read(stored.fired_ticks)
    return {
        "name": stored.name,
        "version": stored.version,
        "next": tick,
        "tick": fired.latest(stored.now),
        "fired_ticks": fired.interrupted().text(),
        "note": f"set back: the clock was ahead, and it would have waited {waited}",
    }
