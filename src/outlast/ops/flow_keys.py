"""Flows with an idempotency key: the first call inserts the flow, later calls get its jobs.

The unique index on (tenant, key) of `flow` decides, before any job is inserted. A losing call
inserts nothing of its flow; each of its jobs stands for the winner's job at the same position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..model.errors import Contention, FlowClosed, KeyConflict
from ..model.job import Job, NewFlow, NewJob, read_job
from .operation import Op, Rows, Statement

Member = tuple[NewFlow, Sequence[NewJob]]  # a flow with a key, and its jobs


@dataclass(frozen=True, slots=True)
class ExistingFlows:
    """Flows of one call that exist already, or occur twice in the call."""

    flows: set[str] = field(default_factory=set)  # not inserted, with their parts
    replacements: dict[str, str] = field(default_factory=dict)  # their jobs → the existing jobs
    jobs: Mapping[str, Job] = field(default_factory=dict)  # by id, without pruned ones

    def new_flows(self, flows: Sequence[NewFlow]) -> list[NewFlow]:
        """The flows without a key that are still to be inserted, with their parts."""
        left_out = self.flows
        return [
            flow for flow in flows if flow.key is None and not {flow.id, flow.part_of} & left_out
        ]

    def leave_out(self, flow: NewFlow, jobs: Sequence[NewJob]) -> None:
        """Leave out a flow. Inside an existing flow, groups with fail_fast are parts of that flow:
        only the jobs tell which parts belong to this one."""
        self.flows.update({flow.id, *(job.team for job in jobs if job.team is not None)})

    def new_jobs(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        return (
            [job for job in jobs if job.id not in self.replacements] if self.replacements else jobs
        )

    def answer(self, id: str, answers: Mapping[str, Job]) -> Job | None:
        """The existing job for a job of the call; None if it has been pruned since."""
        id = self.replacements.get(id, id)
        return answers.get(id) or self.jobs.get(id)


NO_FLOWS = ExistingFlows()


def take_keys(jobs: Sequence[NewJob], flows: Sequence[NewFlow]) -> Op[ExistingFlows]:
    """Insert the flows with keys; returns those whose keys were taken already."""
    if all(flow.key is None for flow in flows):
        return NO_FLOWS
    unique, twins = _deduplicated(jobs, flows)
    rows = [flow.row() | {"jobs": json.dumps(_ids(own))} for flow, own in unique]
    inserted: Rows = (yield Statement("insert_keyed_flows", rows=rows)) if rows else []
    made = {id for (id,) in inserted}
    refused = [(flow, own) for flow, own in unique if flow.id not in made]
    found = (yield from _existing(refused)) if refused else ExistingFlows()
    for (flow, own), (_, first) in twins:
        found.leave_out(flow, own)
        for job, same in zip(own, first, strict=True):
            found.replacements[job.id] = found.replacements.get(same.id, same.id)
    return found


def _deduplicated(
    jobs: Sequence[NewJob], flows: Sequence[NewFlow]
) -> tuple[list[Member], list[tuple[Member, Member]]]:
    """Flows of one call with the same key are one flow. They are sorted by key: two overlapping
    calls then wait for each other in one direction only."""
    by_flow: dict[str | None, list[NewJob]] = {}
    for job in jobs:
        by_flow.setdefault(job.unit, []).append(job)
    first: dict[tuple[str, str], Member] = {}
    twins: list[tuple[Member, Member]] = []
    for flow in flows:
        if flow.key is None or flow.tenant is None or flow.id not in by_flow:
            continue
        member = flow, by_flow[flow.id]
        other = first.setdefault((flow.tenant, flow.key), member)
        if other is not member:
            _refuse_other(flow, other[0].id, other[0].shape)
            twins.append((member, other))
    return [member for _, member in sorted(first.items(), key=lambda one: one[0])], twins


def _ids(jobs: Sequence[NewJob]) -> list[str]:
    """The ids under which the jobs of a flow are stored: two jobs with one key are one job."""
    first: dict[tuple[str, str], str] = {}
    return [
        job.id if job.key is None else first.setdefault((job.queue, job.key), job.id)
        for job in jobs
    ]


def _existing(refused: Sequence[Member]) -> Op[ExistingFlows]:
    wanted = [{"tenant": flow.tenant, "key": flow.key} for flow, _ in refused]
    rows: Rows = yield Statement("flows_by_key", rows=wanted)
    held = {(tenant, key): tuple(row) for tenant, key, *row in rows}
    found = ExistingFlows()
    for flow, own in refused:
        if (flow.tenant, flow.key) not in held:
            raise Contention(reason=f"the flow that held the key {flow.key!r} was just pruned")
        id, shape, ids = held[flow.tenant, flow.key]
        if id == flow.id:
            continue  # sent before, and the response was lost: its jobs are found by id
        _refuse_other(flow, id, shape)
        found.leave_out(flow, own)
        found.replacements.update(zip((job.id for job in own), json.loads(ids), strict=True))
    jobs = (yield from _read(set(found.replacements.values()))) if found.replacements else {}
    for flow, own in refused:
        if flow.id in found.flows and not any(found.replacements[job.id] in jobs for job in own):
            winner = held[flow.tenant, flow.key][0]
            raise FlowClosed(flow=winner, reason="has ended, and its jobs were pruned")
    return ExistingFlows(found.flows, found.replacements, jobs)


def _read(ids: set[str]) -> Op[dict[str, Job]]:
    rows: Rows = yield Statement("existing_jobs", rows=[{"id": id} for id in sorted(ids)])
    return {row[0]: read_job(row[1:]) for row in rows}


def _refuse_other(flow: NewFlow, existing: str, shape: str | None) -> None:
    if flow.shape != shape:
        raise KeyConflict.of_flow(str(flow.key), existing)
