"""Jobs that a handler far away enqueued: they come with its success, and are judged before.

A remote worker may make jobs for the tenant whose job it runs, in queues that its own token
reaches, in that job's flow or in flows of their own. Nothing else can be reached through them, nor
learned: the ids that they bring tie them to each other, and are replaced by ids of ours. Whoever
brings the id of a job that is not for them to see gets the same answer as for one that is nobody's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from ...model.errors import InvalidOption
from ...model.flow_key import with_identity
from ...model.job import Claim, NewJob
from ...model.options import check_name, check_times
from ...ops.reach import Reach

_JOBS = TypeAdapter(tuple[NewJob, ...])
_CHANCE = (1 << 62) - 1  # the bits of an id that are nothing but chance


def read(said: Sequence[dict[str, Any]], claim: Claim, reach: Reach) -> tuple[NewJob, ...]:
    """The jobs, or an InvalidOption that says what is wrong with them."""
    jobs = _made(said)
    ids = {job.id for job in jobs}
    founded = {flow.id for job in jobs for flow in job.founds}
    flows = {claim.flow, None, *founded}
    for job in jobs:
        _check(job, claim, reach)
        if not ids.issuperset(job.after):
            raise _refusal("a job may come after jobs that are enqueued beside it, and no others")
        if job.flow not in flows or any(flow.part_of not in flows for flow in job.founds):
            raise _refusal("a job may be in its maker's flow, or in one that is founded with it")
        if job.team is not None and job.team not in founded:
            raise _refusal("a job may fail together with those that are enqueued beside it alone")
    names = {id: _renamed(id, claim) for id in ids | founded}
    made = [_under_our_names(job, names) for job in jobs]
    return tuple(
        replace(job, founds=tuple(with_identity(flow, made) for flow in job.founds))
        if job.founds
        else job
        for job in made
    )


def _made(said: Any) -> tuple[NewJob, ...]:
    try:
        return _JOBS.validate_python(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _refusal(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]) from None


def _check(job: NewJob, claim: Claim, reach: Reach) -> None:
    for id in (job.id, *(flow.id for flow in job.founds)):
        _check_id(id)
    for flow in job.founds:
        if flow.key is not None:
            check_name("key", flow.key)
    check_name("queue", job.queue)
    check_name("task", job.task)
    check_times(job)
    if job.tenant != claim.tenant:
        raise _refusal(f"its tenant must be {claim.tenant!r}, which is its maker's")
    if not reach.has(job.tenant, job.queue):
        raise _refusal(f"the queue {job.queue!r:.200} is out of this token's reach")
    if job.joins not in (None, claim.id):
        raise _refusal("a job may join its maker, and no other")
    for text in (job.args, job.retry):
        _json(text)
    if not isinstance(_json(job.args), dict):  # a reference to a blob, say
        raise _refusal("its arguments must be an object")
    for hook in _hooks(job, claim):
        _check(hook, claim, reach)
        if hook.flow or hook.team or hook.founds or hook.joins or hook.after or hook.key:
            raise _refusal("a hook may neither have a key nor be tied to other jobs")


def _hooks(job: NewJob, claim: Claim) -> tuple[NewJob, ...]:
    """The jobs that are to be made when one ends; they get their ids then."""
    asked = _json(job.hooks)
    if asked is None:
        return ()
    if not isinstance(asked, dict) or not all(isinstance(some, list) for some in asked.values()):
        raise _refusal("its hooks must be an object of lists")
    found = [hook for some in asked.values() for hook in some]
    return _made([{**hook, "id": claim.id} if isinstance(hook, dict) else hook for hook in found])


def _renamed(id: str, claim: Claim) -> str:
    """Its place in time, which orders those of one call, and the rest of ours: the same whenever
    this report is sent, and nobody can choose it."""
    said = f"{claim.id} {claim.fence} {UUID(id)}"
    chance = int.from_bytes(sha256(said.encode()).digest()[:8]) & _CHANCE
    return str(UUID(int=UUID(id).int & ~_CHANCE | chance))


def _under_our_names(job: NewJob, names: Mapping[str, str]) -> NewJob:
    founds = [
        replace(
            flow,
            id=names[flow.id],
            part_of=_known(flow.part_of, names),
            tenant=None,
            shape=None,
        )
        for flow in job.founds
    ]
    return replace(
        job,
        id=names[job.id],
        after=tuple(names[id] for id in job.after),
        flow=_known(job.flow, names),
        team=_known(job.team, names),
        whole=_known(job.whole, names),
        founds=tuple(founds),
    )


def _known(id: str | None, names: Mapping[str, str]) -> str | None:
    return None if id is None else names.get(id, id)


def _check_id(id: str) -> None:
    try:
        UUID(id)
    except ValueError:
        raise _refusal(f"{id!r:.80} is no UUID") from None


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        raise _refusal("what should be JSON text is none") from None


def _refusal(reason: str) -> InvalidOption:
    return InvalidOption(option="jobs", reason=reason)
