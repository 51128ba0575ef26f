"""What a handler far away needs beside its outcome: durable steps, and the results before it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from ...model.arguments import MAX_PAYLOAD
from ...model.blob import Blob
from ...model.job import Claim, Job
from ...model.options import LONGEST_NAME
from ...ops.flow_report import prerequisites
from ...ops.steps import keep, look_up
from ..calls import Call
from ..problems import Forbidden
from . import tokens
from .said import Closed, Token, check_json

PAGE = 200


class Step(Closed):
    """A step to be looked up; with a `result`, one to be kept."""

    token: Token
    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    result: str | None = Field(None, max_length=MAX_PAYLOAD, description="as JSON text")


class Kept(BaseModel):
    result: str | None = Field(description="what is kept, as JSON text; null: nothing yet")


class Before(Closed):
    """Which page of the jobs before this one."""

    token: Token
    after: int = Field(-1, ge=-1, le=2**31 - 1, description="the last place of the page before")
    limit: int = Field(PAGE, ge=1, le=PAGE)


class Page(BaseModel):
    jobs: list[tuple[int, dict[str, Any]]] = Field(description="each with its place")


async def keep_step(call: Call) -> Kept:
    claim = await claim_of(call, call.body.token)
    store = call.ol.store
    if call.body.result is None:
        return Kept(result=await store.arun(look_up, claim.id, call.body.name))
    check_json("result", call.body.result)
    kept = await store.arun(keep, claim, call.body.name, call.body.result)
    return Kept(result=kept)


async def read_prerequisites(call: Call) -> Page:
    claim = await claim_of(call, call.body.token)
    found = await call.ol.store.arun(prerequisites, claim.id, call.body.after, call.body.limit)
    return Page(jobs=[(place, _told(job)) for place, job in found])


def _told(job: Job) -> dict[str, Any]:
    """As everywhere; and what its result refers to, for those who can read it."""
    told = job.as_json()
    return {**told, "reference": job.result.as_text()} if isinstance(job.result, Blob) else told


async def claim_of(call: Call, token: str) -> Claim:
    key = await call.service.key(tokens.PURPOSE)
    claim = tokens.read(token, key)
    if claim is None or not call.reach.has(claim.tenant, claim.queue):
        raise Forbidden("this is no task token for you")
    return claim
