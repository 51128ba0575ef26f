"""`app.conf.beat_schedule` as schedules of Outlast, which workers fire without a beat process.

Intervals are multiples since 1970, not since the last start. As with beat, missed ticks run once,
and runs of one schedule may overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from ...model.errors import InvalidOption
from ...model.schedule import ScheduleOptions
from .schedules import CrontabSchedule, IntervalSchedule
from .sending import call_of

if TYPE_CHECKING:
    from .app import Celery

ENTRY = ("task", "schedule", "args", "kwargs", "options", "relative")
ONE_JOB_ONLY = ("countdown", "eta", "task_id", "link", "link_error")


def read_beat_schedule(app: Celery, entries: Mapping[str, object]) -> None:
    """Declare a schedule for each entry."""
    for name, entry in entries.items():
        if not isinstance(entry, Mapping) or not {"task", "schedule"} <= entry.keys():
            raise _refused(name, f"must have task and schedule, not {entry!r:.80}")
        if unknown := sorted(set(entry) - set(ENTRY)):
            raise _refused(name, f"has {unknown[0]!r}, but may only have {', '.join(ENTRY)}")
        options = dict(entry.get("options") or {})
        if single := sorted(set(options) & set(ONE_JOB_ONLY)):
            raise _refused(name, f"has the option {single[0]}, which belongs to one call")
        args, kwargs = entry.get("args") or (), entry.get("kwargs") or {}
        call = call_of(app, entry["task"], args, kwargs, options)
        app.ol.schedule(name, call, **timing(app, name, entry["schedule"]))


def timing(app: Celery, name: str, when: object) -> ScheduleOptions:
    match when:
        case CrontabSchedule():
            zone = app.conf.zone_name
            return {"cron": when.cron, "tz": zone, "missed": "once", "overlap": "allow"}
        case IntervalSchedule():
            return timing(app, name, when.run_every)
        case timedelta() | int() | float() if not isinstance(when, bool):
            return {"every": when, "missed": "once", "overlap": "allow"}
    raise _refused(name, f"must be due by crontab(…), seconds or a timedelta, not {when!r:.80}")


def _refused(name: str, reason: str) -> InvalidOption:
    return InvalidOption(option=f"beat_schedule[{name!r}]", reason=reason)
