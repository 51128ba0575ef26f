"""Announce declared schedules when a worker starts: insert new rows, update changed ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model.errors import InvalidOption
from ..model.fired_ticks import FiredTicks
from ..model.schedule_state import (
    EffectiveSchedule,
    ScheduleDefinition,
    StoredSchedule,
    next_start,
)
from .access import ALL_JOBS, Access
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement, creates_database


@dataclass(frozen=True, slots=True)
class Announced:
    """The result of an announcement."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # their names belong to schedules outside the caller's access


@creates_database
def announce(
    definitions: Sequence[ScheduleDefinition], reach: Access = ALL_JOBS, by: str | None = None
) -> Op[Announced]:
    """Insert the schedules that code declares, and update those whose declaration changed. Nothing
    is removed, and changes made at run time stay in force. `by`: the token of a remote worker that
    announces them, for the record."""
    if not definitions:
        return Announced()
    definitions = sorted(definitions, key=lambda one: one.name)  # one order of locks
    yield BEGIN
    clock: Rows = yield Statement("schedule_clock")
    now = float(clock[0][0])
    names = json.dumps([one.name for one in definitions])
    rows: Rows = yield Statement("hold_schedules", {"names": names, **reach.params})
    stored = {row[0]: StoredSchedule(*row) for row in rows}
    new = [new_schedule_row(one, now, code=True) for one in definitions if one.name not in stored]
    added: Rows = (yield Statement("insert_schedules", rows=new)) if new else []
    changed = [
        _announced_row(stored[one.name], one, now)
        for one in definitions
        if one.name in stored and stored[one.name].read_code() != one.content()
    ]
    if changed:
        yield Statement("change_schedules", rows=changed)
    yield Statement("announce_schedules", {"names": names, **reach.params})
    done = Announced(
        tuple(name for (name,) in added),
        tuple(row["name"] for row in changed),
        tuple(sorted({row["name"] for row in new}.difference(name for (name,) in added))),
    )
    if by is not None:
        yield from _record(done, definitions, by)
    return done


def _record(done: Announced, definitions: Sequence[ScheduleDefinition], by: str) -> Op[None]:
    for one in definitions:
        if one.name in (*done.added, *done.changed):
            facts = {"by": by, "schedule": one.name, "tenant": one.tenant, "queue": one.queue}
            yield from record_action("schedule-announce", [None], facts)


def reannounce(names: Sequence[str], reach: Access = ALL_JOBS) -> Op[None]:
    """Refresh the announcement of a long-running worker. Declarations are not updated: a newer
    deployment may have changed them."""
    yield Statement("announce_schedules", {"names": json.dumps(list(names)), **reach.params})


def new_schedule_row(definition: ScheduleDefinition, now: float, *, code: bool) -> dict[str, Any]:
    """The columns of a schedule that starts with its next tick."""
    effective = EffectiveSchedule(definition.spec, definition.job)
    return {
        "name": definition.name,
        **effective.row(),
        "code": json.dumps(definition.content()) if code else None,
        "next": next_start(definition.spec, None, now),
    }


def _announced_row(
    stored: StoredSchedule, definition: ScheduleDefinition, now: float
) -> dict[str, Any]:
    """The row of an announced schedule. One created at run time stays until it is reset to the
    code's declaration."""
    changes = stored.read_changes()
    if stored.code is None:
        changes = {"spec": stored.read_spec().as_json(), "job": stored.read_job()}
    try:
        effective = EffectiveSchedule.of(definition.content(), changes)
    except InvalidOption:  # a zone changed over what is a period now: the row stays until reset
        effective = EffectiveSchedule(stored.read_spec(), stored.read_job())
    return changed_schedule_row(stored, effective, definition.content(), changes, now) | {
        "announced": 1
    }


def changed_schedule_row(
    stored: StoredSchedule,
    effective: EffectiveSchedule,
    code: Mapping[str, Any] | None,
    changes: Mapping[str, Any] | None,
    now: float,
) -> dict[str, Any]:
    """The columns of a changed schedule; its next tick stays if its tick times do."""
    row = effective.row()
    same = stored.error is None and _times(row["spec"]) == _times(stored.spec)
    return {
        "name": stored.name,
        "version": stored.version,
        **row,
        "code": None if code is None else json.dumps(code),
        "changes": json.dumps(changes) if changes else None,
        "next": stored.next_at if same else next_start(effective.spec, stored, now),
        "fired_ticks": stored.fired_ticks if same else interrupted(stored),
        "announced": 0,
    }


def interrupted(stored: StoredSchedule) -> str:
    """Whether the next tick does not follow the last one."""
    return FiredTicks.read(stored.fired_ticks).interrupted().text()


def _times(spec: str) -> list[Any]:
    stored = json.loads(spec)
    return [stored.get(name) for name in ("cron", "every", "tz")]
