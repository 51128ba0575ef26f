"""Follow-up jobs that a remote handler enqueued: validated, then inserted with its success.

A remote worker may enqueue jobs for the tenant of its job, in queues that its token may access, in
that job's flow or in new flows. The ids that it sends only link these jobs to each other, and are
replaced by derived ones. An inaccessible job's id is refused like an id that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from ...model.claim import Claim
from ...model.errors import InvalidOption
from ...model.flow import check_flow_name
from ...model.flow_key import with_identity
from ...model.job import NewJob
from ...model.options import check_name, check_times
from ...model.uniqueness import check_unique_job
from ...ops.access import Access

_JOBS = TypeAdapter(tuple[NewJob, ...])
_NO_ID = str(UUID(int=0))  # of a job without an id yet
_RANDOM_BITS = (1 << 62) - 1  # the random bits of an id


def read_followups(
    data: Sequence[dict[str, object]], claim: Claim, reach: Access
) -> tuple[NewJob, ...]:
    """The validated jobs; raises InvalidOption with the reason."""
    jobs = _parse(data)
    ids = {job.id for job in jobs}
    founded = {flow.id for job in jobs for flow in job.new_flows}
    flows = {claim.flow, None, *founded}
    for job in jobs:
        _check(job, claim.tenant, claim.id, reach)
        if not ids.issuperset(job.after):
            raise _invalid_jobs("a job may only come after jobs that are enqueued with it")
        if job.flow not in flows or any(flow.part_of not in flows for flow in job.new_flows):
            raise _invalid_jobs(
                "a job may only be in the flow of its enqueuer, or in one that is created with it"
            )
        if job.team is not None and job.team not in founded:
            raise _invalid_jobs("a job may only fail together with jobs that are enqueued with it")
    names = {id: _derived_id(id, claim) for id in ids | founded}
    made = [_with_derived_ids(job, names) for job in jobs]
    return tuple(
        replace(job, new_flows=tuple(with_identity(flow, made) for flow in job.new_flows))
        if job.new_flows
        else job
        for job in made
    )


def _parse(data: object) -> tuple[NewJob, ...]:
    try:
        return _JOBS.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _invalid_jobs(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]) from None


def read_template(data: Mapping[str, object], reach: Access) -> dict[str, object]:
    """The validated columns of the jobs of a remote worker's schedule, of any tenant."""
    job = _parse([{**data, "id": _NO_ID}])[0]
    _check(job, job.tenant, _NO_ID, reach)
    if job.flow or job.team or job.new_flows or job.sibling_of or job.after or job.waits_for:
        raise _invalid_jobs("the job of a schedule may not be tied to other jobs")
    if job.key or job.unique_mode or job.delay is not None or job.at is not None:
        raise _invalid_jobs("the job of a schedule may have neither a key nor a time")
    row = job.row()
    del row["id"]
    return row


def _check(job: NewJob, tenant: str, maker: str, reach: Access) -> None:
    for id in (job.id, *(flow.id for flow in job.new_flows)):
        _check_id(id)
    for flow in job.new_flows:
        if flow.name is not None:
            check_flow_name(flow.name)
        if flow.key is not None:
            check_name("key", flow.key)
    check_name("queue", job.queue)
    check_name("task", job.task)
    if job.lane is not None:
        check_name("lane", job.lane)
    check_times(job)
    check_unique_job(job)
    check_name("tenant", job.tenant)
    if job.tenant != tenant:
        raise _invalid_jobs(f"its tenant must be {tenant!r}, the tenant of its enqueuer")
    if not reach.allows(job.tenant, job.queue):
        raise _invalid_jobs(f"the queue {job.queue!r:.200} is not accessible to this token")
    if job.sibling_of not in (None, maker):
        raise _invalid_jobs("a job may only join its enqueuer")
    for text in (job.args, job.retry):
        _json(text)
    if not isinstance(_json(job.args), dict):  # such as a reference to a blob
        raise _invalid_jobs("its arguments must be an object")
    for hook in _hooks(job, maker):
        _check(hook, tenant, maker, reach)
        if hook.flow or hook.team or hook.new_flows or hook.sibling_of or hook.after or hook.key:
            raise _invalid_jobs("a hook may have neither a key nor dependencies")


def _hooks(job: NewJob, maker: str) -> tuple[NewJob, ...]:
    """The hooks of a job, which get their ids when it ends."""
    hooks = _json(job.hooks)
    if hooks is None:
        return ()
    if not isinstance(hooks, dict) or not all(isinstance(some, list) for some in hooks.values()):
        raise _invalid_jobs("hooks must be an object of lists")
    found = [hook for some in hooks.values() for hook in some]
    return _parse([{**hook, "id": maker} if isinstance(hook, dict) else hook for hook in found])


def named_lanes(jobs: Sequence[NewJob]) -> set[tuple[str, str]]:
    """Queue and lane of each job, and of each hook, that names a lane."""
    lanes = set[tuple[str, str]]()
    rows: list[Mapping[str, Any]] = [job.row() for job in jobs]
    while rows:
        row = rows.pop()
        if row.get("lane") is not None:
            lanes.add((row["queue"], row["lane"]))
        hooks = _json(row.get("hooks"))
        if isinstance(hooks, dict):
            rows += [hook for some in hooks.values() for hook in some]
    return lanes


def _derived_id(id: str, claim: Claim) -> str:
    """A new id with the time of the given one, which orders the jobs of a call, and derived random
    bits: it is the same for each repeat of the report, and the worker cannot choose it."""
    content = f"{claim.id} {claim.fence} {UUID(id)}"
    random_part = int.from_bytes(sha256(content.encode()).digest()[:8]) & _RANDOM_BITS
    return str(UUID(int=UUID(id).int & ~_RANDOM_BITS | random_part))


def _with_derived_ids(job: NewJob, names: Mapping[str, str]) -> NewJob:
    founds = [
        replace(
            flow,
            id=names[flow.id],
            part_of=_derived_or_same(flow.part_of, names),
            tenant=None,
            shape=None,
        )
        for flow in job.new_flows
    ]
    return replace(
        job,
        id=names[job.id],
        after=tuple(names[id] for id in job.after),
        flow=_derived_or_same(job.flow, names),
        team=_derived_or_same(job.team, names),
        unit=_derived_or_same(job.unit, names),
        new_flows=tuple(founds),
    )


def _derived_or_same(id: str | None, names: Mapping[str, str]) -> str | None:
    return None if id is None else names.get(id, id)


def _check_id(id: str) -> None:
    try:
        UUID(id)
    except ValueError:
        raise _invalid_jobs(f"{id!r:.80} is not a UUID") from None


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        raise _invalid_jobs("invalid JSON text") from None


def _invalid_jobs(reason: str) -> InvalidOption:
    return InvalidOption(option="jobs", reason=reason)
