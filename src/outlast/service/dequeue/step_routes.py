"""Endpoints for handlers of remote workers: durable steps, results of prerequisites, and closing a
lane."""

from __future__ import annotations

from pydantic import BaseModel, Field

from ...model.arguments import MAX_PAYLOAD
from ...model.blob import Blob
from ...model.claim import Claim
from ...model.job import Job
from ...model.lane import MAX_SLOW_DOWN_S
from ...model.options import MAX_NAME_CHARS
from ...ops.flow_report import prerequisites
from ...ops.lanes import slow_down
from ...ops.limits import tenant_lane_queues
from ...ops.steps import keep, look_up
from ..problems import Forbidden, UnprocessableBody
from ..request import RequestContext
from . import task_tokens
from .report_models import ClosedModel, Token, check_json

PAGE_SIZE = 200


class StepRequest(ClosedModel):
    """A step to look up; with a `result`, one to store."""

    token: Token
    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    result: str | None = Field(None, max_length=MAX_PAYLOAD, description="as JSON text")


class StoredStep(BaseModel):
    result: str | None = Field(description="the stored result, as JSON text; null: none yet")


class PrerequisitesQuery(ClosedModel):
    """A page of the prerequisites."""

    token: Token
    after: int = Field(
        -1, ge=-1, le=2**31 - 1, description="the last position of the previous page"
    )
    limit: int = Field(PAGE_SIZE, ge=1, le=PAGE_SIZE)


class PrerequisitesPage(BaseModel):
    jobs: list[tuple[int, dict[str, object]]] = Field(description="each with its position")


class SlowDownRequest(ClosedModel):
    """The time for which no worker starts another job of this job's lane."""

    token: Token
    seconds: float = Field(gt=0, le=MAX_SLOW_DOWN_S, allow_inf_nan=False)


class ClosedLane(BaseModel):
    closed_until: float = Field(description="seconds since 1970, by the database's clock")


async def keep_step(call: RequestContext) -> StoredStep:
    claim = await claim_of(call, call.body.token)
    store = call.ol.store
    if call.body.result is None:
        return StoredStep(result=await store.arun(look_up, claim.id, call.body.name))
    check_json("result", call.body.result)
    stored = await store.arun(keep, claim, call.body.name, call.body.result)
    return StoredStep(result=stored)


async def read_prerequisites(call: RequestContext) -> PrerequisitesPage:
    claim = await claim_of(call, call.body.token)
    found = await call.ol.store.arun(prerequisites, claim.id, call.body.after, call.body.limit)
    return PrerequisitesPage(jobs=[(position, _job_json(job)) for position, job in found])


async def slow_lane_down(call: RequestContext) -> ClosedLane:
    """Close the job's lane. Only workers of all tenants may close a lane of several tenants."""
    claim = await claim_of(call, call.body.token)
    if claim.lane is None:
        raise UnprocessableBody(
            f"this job has no lane: declare limits of the queue {claim.queue!r} with ol.queue(…)"
        )
    store = call.ol.store
    if call.who.tenant is not None and (
        claim.lane != call.who.tenant or claim.queue not in await store.arun(tenant_lane_queues)
    ):
        raise Forbidden(
            f"the lane {claim.lane!r} of the queue {claim.queue!r} is not this tenant's alone, so a"
            " token of one tenant cannot close it: raise RetryLater(seconds) instead, or declare"
            " the queue with lane='tenant'"
        )
    closed_until = await store.arun(slow_down, claim, call.body.seconds)
    return ClosedLane(closed_until=closed_until)


def _job_json(job: Job) -> dict[str, object]:
    """A job as in all responses, plus the reference to its result's blob, for readers with
    access."""
    job_json = job.as_json()
    return (
        {**job_json, "reference": job.result.as_text()}
        if isinstance(job.result, Blob)
        else job_json
    )


async def claim_of(call: RequestContext, token: str) -> Claim:
    key = await call.service.key(task_tokens.PURPOSE)
    claim = task_tokens.read(token, key)
    if claim is None or not call.reach.allows(claim.tenant, claim.queue):
        raise Forbidden("this is not a task token of yours")
    return claim
