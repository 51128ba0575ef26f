"""Schedules that remote workers declare in their code, announced through the service.

A schedule outlives the token that announced it, so the token needs the scope `enqueue` as well, and
must be valid for all tenants, as for a schedule created at run time. Announcements are recorded.
"""

from __future__ import annotations

import logging

from pydantic import BaseModel, Field

from ...model.options import check_name
from ...model.schedule import ScheduleSpec
from ...model.schedule_state import ScheduleDefinition
from ...ops.announce import announce, reannounce
from ...protocol import MAX_REPORTS
from ..problems import Forbidden
from ..request import RequestContext
from .followups import read_template
from .report_models import ClosedModel

log = logging.getLogger("outlast.service")


class DeclaredSchedule(ClosedModel):
    name: str
    spec: dict[str, object] = Field(description="cron or every, tz, missed, overlap, jitter, grace")
    job: dict[str, object] = Field(
        description="the columns of its jobs: task, queue, tenant, args, …"
    )


class AnnounceRequest(ClosedModel):
    """Schedules of a worker's code, or the names of those announced before."""

    schedules: list[DeclaredSchedule] = Field(default_factory=list, max_length=MAX_REPORTS)
    names: list[str] = Field(default_factory=list, max_length=MAX_REPORTS)


class AnnouncedSchedules(BaseModel):
    added: list[str]
    changed: list[str]
    refused: list[str] = Field(description="their names belong to schedules out of reach")


async def announce_schedules(call: RequestContext) -> AnnouncedSchedules:
    body: AnnounceRequest = call.body
    definitions = [_definition(call, one) for one in body.schedules]
    done = await call.ol.store.arun(announce, definitions, call.reach, call.by)
    if body.names:
        names = [check_name("name", name) for name in body.names]
        await call.ol.store.arun(reannounce, names, call.reach)
    for name in (*done.added, *done.changed):
        log.info("schedule %s: announced by a remote worker of %s", name, call.by)
    return AnnouncedSchedules(
        added=list(done.added), changed=list(done.changed), refused=list(done.refused)
    )


def _definition(call: RequestContext, one: DeclaredSchedule) -> ScheduleDefinition:
    queue = str(one.job.get("queue"))
    if not call.who.can_access(queue):
        raise Forbidden(f"this token has no access to the queue {queue!r:.200}")
    template = read_template(one.job, call.reach)
    return ScheduleDefinition(check_name("name", one.name), ScheduleSpec.of(one.spec), template)
