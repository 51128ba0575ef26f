"""Idempotency keys of flows: one key for the whole flow; keys of single jobs must not split it.

A flow with a key is inserted whole or not at all; a second call gets the jobs of the first. A key
on one job of a flow cannot do that: the keyed job would be found, and the other jobs would be
inserted and run a second time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from .errors import InvalidFlow, InvalidOption, Problem
from .job import Job, NewFlow, NewJob, read_args


def with_identity(flow: NewFlow, jobs: Sequence[NewJob]) -> NewFlow:
    """Add the tenant of its jobs and a digest of their calls to a flow with a key."""
    if flow.key is None:
        return flow
    own = members(flow.id, jobs)
    tenants = sorted({job.tenant for job in own})
    if not tenants:
        raise InvalidOption(option="key", reason="is for a flow that has jobs")
    if len(tenants) > 1:
        raise InvalidOption(
            option="key",
            reason=f"is unique per tenant: the jobs of the flow with the key {flow.key!r} belong to"
            f" {len(tenants)} tenants ({', '.join(map(repr, tenants[:5]))})",
        )
    return replace(flow, tenant=tenants[0], shape=_digest(own))


def members(flow: str, jobs: Iterable[NewJob]) -> list[NewJob]:
    """The jobs declared in one group, chain or flow, in the order given."""
    return [job for job in jobs if job.unit == flow]


def _digest(jobs: Sequence[NewJob]) -> str:
    """A digest of tasks, arguments, queues and order. Arguments are compared in masked form:
    secrets are left out, as for single jobs."""
    positions = {job.id: position for position, job in enumerate(jobs)}
    calls = [
        [
            job.task,
            job.queue,
            read_args(job.args),
            [positions.get(id, id) for id in job.after],
            job.needs,
            job.quorum,
        ]
        for job in jobs
    ]
    return sha256(json.dumps(calls, sort_keys=True).encode()).hexdigest()


def existing_units(jobs: Sequence[NewJob], existing: Mapping[str, Job | NewJob]) -> set[str]:
    """The groups, chains and flows whose jobs all exist already under their own keys; they are not
    inserted again. A unit of which only some jobs exist would be split and is refused with the
    names of those jobs. `existing` maps ids of jobs to insert to the existing jobs."""
    by_unit: dict[str | None, list[NewJob]] = {}
    for job in jobs:
        by_unit.setdefault(job.unit, []).append(job)
    problems = list(_unordered(by_unit.pop(None, []), {job.id for job in jobs}, existing))
    empty: set[str] = set()
    for unit, own in by_unit.items():
        ids = {job.id for job in own}
        outside = [job for job in own if job.id in existing and existing[job.id].id not in ids]
        if len(outside) == len(own) and _is_one_flow(outside, existing):
            empty.add(str(unit))
        else:
            problems += (_problem(job, existing[job.id]) for job in outside)
    if problems:
        raise InvalidFlow(problems)
    return empty


def _is_one_flow(outside: Sequence[NewJob], existing: Mapping[str, Job | NewJob]) -> bool:
    flows = {existing[job.id].flow for job in outside}
    return len(flows) == 1 and (flows != {None} or not any(job.after for job in outside))


def _unordered(
    jobs: Sequence[NewJob], ids: set[str], existing: Mapping[str, Job | NewJob]
) -> Iterator[Problem]:
    """Existing jobs that this call places after jobs inserted just now."""
    for job in jobs:
        found = existing.get(job.id)
        if found is None or found.id in ids:
            continue
        if any(id in ids and (id not in existing or existing[id].id in ids) for id in job.after):
            yield _problem(job, found)


def _problem(job: NewJob, found: Job | NewJob) -> Problem:
    return Problem(
        f"the job of key {job.key!r} ({job.task})",
        f"is job {found.id} already, outside this flow, and the rest would run a second time."
        " Give the key to the flow instead: chain(…).using(key=…), group(…).using(key=…) or"
        " Flow(key=…); or let the rest come after that job: after=…",
    )
