"""Schedules whose ticks are in the past: rows are moved, not clocks."""

from __future__ import annotations

import time
from typing import Any

from outlast import Outlast, Task
from tests.support import Database


def table(database: Database, name: str) -> str:
    return f"outlast_{name}" if database.is_sqlite else name


def set_next(database: Database, name: str, tick: float) -> None:
    """A schedule is due since that tick, as after an outage."""
    schedule = table(database, "schedule")
    moment = "?" if database.is_sqlite else "to_timestamp(%s)"
    where = "?" if database.is_sqlite else "%s"
    database.rows(
        f"UPDATE {schedule} SET next_at = {moment}, last_tick = NULL,"
        f" fired_ticks = '[]' WHERE name = {where}",
        (tick, name),
    )


def set_column(database: Database, name: str, column: str, value: Any) -> None:
    mark = "?" if database.is_sqlite else "%s"
    database.rows(
        f"UPDATE {table(database, 'schedule')} SET {column} = {mark} WHERE name = {mark}",
        (value, name),
    )


def past_tick(every: float, back: int) -> float:
    """The tick of a period that many before the current one."""
    return (time.time() // every - back) * every


def declared(app: Outlast, **options: Any) -> Task[..., Any]:
    """A task with a schedule of its name."""

    @app.task(name="report", **options)
    def report() -> None: ...

    return report
