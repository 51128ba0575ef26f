"""Lists of schedules, by name: a page with the count of all, or all of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.schedule_state import Schedule, read_schedule
from .access import ALL_JOBS, Access
from .operation import Op, Rows, Statement
from .search import like_pattern

MAX_SCHEDULES = 1_000_000_000  # in one list


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """Some schedules, the number of all that match, and the cursor of the next page."""

    schedules: list[Schedule]
    count: int
    next: str | None  # the last name of this page; None: no more


def schedules(
    reach: Access = ALL_JOBS, *, after: str = "", limit: int = MAX_SCHEDULES, text: str = ""
) -> Op[list[Schedule]]:
    """The schedules whose names follow `after` and contain `text`, in any case."""
    given = {"after": after, "limit": limit, **_matching(text), **reach.params}
    rows: Rows = yield Statement("schedules", given)
    return [read_schedule(row, state) for state, *row in rows]


def schedule_page(
    reach: Access = ALL_JOBS, *, after: str = "", limit: int, text: str = ""
) -> Op[SchedulePage]:
    """A page of schedules; one more than fits is read, to know whether another page follows."""
    found = yield from schedules(reach, after=after, limit=limit + 1, text=text)
    count = yield from count_schedules(reach, text)
    shown = found[:limit]
    return SchedulePage(shown, count, shown[-1].name if len(found) > limit else None)


def count_schedules(reach: Access = ALL_JOBS, text: str = "") -> Op[int]:
    rows: Rows = yield Statement("count_schedules", {**_matching(text), **reach.params})
    return int(rows[0][0])


def _matching(text: str) -> dict[str, str | None]:
    return {"text": like_pattern(text) if text else None}
