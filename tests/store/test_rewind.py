"""The database's clock was ahead: schedules go on from now, and no tick fires twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import Outlast
from outlast.ops.announce import announce
from outlast.ops.fire import fire_due
from outlast.ops.rewind import rewind
from tests.store.schedules import declared, past_tick, set_column, set_next, table
from tests.support import Database

Run = Callable[..., Any]
HOUR, YEAR = 3600.0, 365 * 86400.0


def fired_ahead(
    run: Run, app: Outlast, database: Database, ahead: float, *, every: float = HOUR
) -> tuple[float, float]:
    """A schedule that fired in time, and then by a clock that was ahead."""
    declared(app, every=every, overlap="allow")
    run(announce, list(app.registry.schedules.values()))
    set_next(database, "report", past_tick(every, 0))
    assert run(fire_due, ["report"]).fired == 1
    current = past_tick(every, 0)
    false = (current + ahead) // every * every
    spans = json.loads(column(database, "fired_ticks"))
    assert spans == [[current, current]]
    set_column(database, "report", "fired_ticks", json.dumps([*spans, [false, false]]))
    for name, moment in (("next_at", false + every), ("last_tick", false)):
        set_moment(database, name, moment)
    return current, false


def set_moment(database: Database, column: str, moment: float) -> None:
    value = f"{moment}" if database.is_sqlite else f"to_timestamp({moment})"
    database.rows(f"UPDATE {table(database, 'schedule')} SET {column} = {value}")


def column(database: Database, name: str) -> str:
    [[text]] = database.rows(f"SELECT CAST({name} AS text) FROM {table(database, 'schedule')}")
    return str(text)


@pytest.mark.parametrize("ahead", [5 * HOUR, 4 * YEAR])
def test_a_schedule_goes_on_from_now_after_the_clock_was_ahead(
    run: Run, app: Outlast, database: Database, ahead: float
) -> None:
    """R237: hours and years; and the ticks that fired ahead of their time do not fire again."""
    current, false = fired_ahead(run, app, database, ahead)
    assert run(rewind) == (["report"], None)
    assert run(rewind) == ([], None)
    [schedule] = app.schedules()
    assert schedule.next_at == datetime.fromtimestamp(current + HOUR, UTC)
    assert schedule.last_tick == datetime.fromtimestamp(current, UTC)
    assert "the clock was ahead" in str(schedule.note)
    # Its time comes for the tick that fired ahead: the one before it was the last that did not.
    set_moment(database, "next_at", current)
    app.pause_schedule("report")
    resumed = app.resume_schedule("report")
    assert resumed.next_at == datetime.fromtimestamp(current + HOUR, UTC)
    assert run(fire_due, ["report"]).found == 0
    assert false > time.time()


def test_a_clock_that_was_set_back_rewinds_nothing(
    run: Run, app: Outlast, database: Database
) -> None:
    """R237: the ticks from now on have fired, so they are waited for."""
    declared(app, every=HOUR)
    run(announce, list(app.registry.schedules.values()))
    ahead = past_tick(HOUR, -3)
    set_moment(database, "created_at", past_tick(HOUR, 9))
    spans = json.dumps([[past_tick(HOUR, 8), ahead]])
    set_column(database, "report", "fired_ticks", spans)
    set_moment(database, "last_tick", ahead)
    set_moment(database, "next_at", ahead + HOUR)
    assert run(rewind) == ([], None)
    assert app.reset_schedule("report").next_at == datetime.fromtimestamp(ahead + HOUR, UTC)


def test_a_schedule_that_was_made_by_a_clock_that_was_ahead_starts_now(
    run: Run, app: Outlast, database: Database
) -> None:
    """R237: also where its clock ran to the end of time, and there was no next tick."""
    declared(app, every=HOUR)
    run(announce, list(app.registry.schedules.values()))
    for name in ("created_at", "changed_at", "next_at"):
        set_moment(database, name, past_tick(HOUR, 0) + 3 * YEAR)
    assert run(rewind)[0] == ["report"]
    assert app.schedules()[0].next_at == datetime.fromtimestamp(past_tick(HOUR, -1), UTC)
    set_column(database, "report", "next_at", None)
    set_moment(database, "changed_at", past_tick(HOUR, 0) + 3 * YEAR)
    assert run(rewind)[0] == ["report"]


def test_ticks_that_an_operator_skipped_stay_skipped(
    run: Run, app: Outlast, database: Database
) -> None:
    """R237"""
    declared(app, every=HOUR)
    run(announce, list(app.registry.schedules.values()))
    skipped = app.skip_schedule("report", n=3)
    set_moment(database, "changed_at", time.time() + HOUR)
    assert run(rewind) == ([], None)
    assert app.schedules()[0].next_at == skipped.next_at
