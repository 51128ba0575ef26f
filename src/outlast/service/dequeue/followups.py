"""Jobs that a handler far away enqueued: they come with its success, and are judged before.

A remote worker may make jobs for the tenant whose job it runs, in queues that its own token
reaches, in that job's flow or in flows of their own. Nothing else can be reached through them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from ...model.errors import InvalidOption
from ...model.job import Claim, NewJob
from ...model.options import check_name
from ...ops.reach import Reach

_JOBS = TypeAdapter(tuple[NewJob, ...])


def read(said: Sequence[dict[str, Any]], claim: Claim, reach: Reach) -> tuple[NewJob, ...]:
    """The jobs, or an InvalidOption that says what is wrong with them."""
    try:
        jobs = _JOBS.validate_python(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _refusal(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]) from None
    ids = {job.id for job in jobs}
    flows = {claim.flow, None} | {flow.id for job in jobs for flow in job.founds}
    for job in jobs:
        _check(job, claim, reach)
        if not ids.issuperset(job.after):
            raise _refusal("a job may come after jobs that are enqueued beside it, and no others")
        if job.flow not in flows or any(flow.part_of not in flows for flow in job.founds):
            raise _refusal("a job may be in its maker's flow, or in one that is founded with it")
    return jobs


def _check(job: NewJob, claim: Claim, reach: Reach) -> None:
    for id in (job.id, *job.after, *(flow.id for flow in job.founds)):
        _check_id(id)
    check_name("queue", job.queue)
    check_name("task", job.task)
    _check_place(job.tenant, job.queue, claim, reach)
    if job.joins not in (None, claim.id):
        raise _refusal("a job may join its maker, and no other")
    for text in (job.args, job.retry, job.hooks):
        _check_json(text)
    for hook in _hooks(job):
        _check_place(hook.get("tenant", ""), hook.get("queue", ""), claim, reach)
        if hook.get("flow") not in (None, job.flow) or hook.get("founds") or hook.get("joins"):
            raise _refusal("a hook may be in the flow of its job, and in no other")


def _check_place(tenant: str, queue: str, claim: Claim, reach: Reach) -> None:
    if tenant != claim.tenant:
        raise _refusal(f"its tenant must be {claim.tenant!r}, which is its maker's")
    if not reach.has(tenant, queue):
        raise _refusal(f"the queue {queue!r:.200} is out of this token's reach")


def _check_id(id: str) -> None:
    try:
        UUID(id)
    except ValueError:
        raise _refusal(f"{id!r:.80} is no UUID") from None


def _check_json(text: str | None) -> None:
    try:
        json.loads(text or "null")
    except (ValueError, RecursionError):
        raise _refusal("what should be JSON text is none") from None


def _hooks(job: NewJob) -> Iterator[dict[str, Any]]:
    asked = json.loads(job.hooks or "{}")
    if not isinstance(asked, dict):
        raise _refusal("its hooks must be an object")
    for hooks in asked.values():
        for hook in hooks if isinstance(hooks, list) else []:
            if isinstance(hook, dict):
                yield hook


def _refusal(reason: str) -> InvalidOption:
    return InvalidOption(option="jobs", reason=reason)
