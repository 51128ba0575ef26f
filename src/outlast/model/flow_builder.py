"""Build rows from calls, groups, chains and flows: each job with the ids of its prerequisites.

The whole call is laid out before anything is inserted. The database only counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from .arguments import MAX_PAYLOAD
from .errors import InvalidArguments, InvalidFlow, InvalidOption, Problem
from .flow import Chain, Flow, Group, Node, as_list
from .flow_key import with_identity
from .ids import new_job_id, new_job_ids
from .job import Job, NewFlow, NewJob
from .task import Call
from .uniqueness import check_unique_job

TOO_DEEP = (
    "has chains and groups too deep inside each other: make a chain longer with .then(…), or add"
    " its jobs to a Flow()"
)
IN_A_CYCLE = "is part of a cycle, or comes after one"
MAX_EDGES = 200_000  # per call; a group of hundreds after a group of hundreds exceeds it


def build_jobs(
    items: Iterable[Any],
    into_flow: str | None = None,
    sibling_of: str | None = None,
    limit: int = MAX_PAYLOAD,
) -> list[NewJob]:
    """The rows of one call, in the order given; a single error names every problem. `into_flow`
    is an existing flow that the jobs join. Dependents of the job `sibling_of` also wait for the
    last jobs of this call. `limit` bounds the bytes of one job's arguments."""
    items = list(items)
    if into_flow is None and sibling_of is None and all(map(_is_independent, items)):
        if len(items) == 1:
            return [items[0].new_job(None, limit)]
        return _independent_jobs(items, limit)
    nodes: list[Node] = []
    new_flows: list[NewFlow] = []
    for item in items:
        try:
            _add_item(item, nodes, new_flows, into_flow)
        except RecursionError:
            raise InvalidOption(option="flow", reason=TOO_DEEP) from None
    for node in nodes:
        node.id = new_job_id()
    prerequisites = _resolve_prerequisites(nodes)
    _refuse_cycles(nodes, prerequisites)
    _refuse_too_many_edges(prerequisites)
    jobs = _rows(nodes, prerequisites, into_flow, limit)
    if jobs and new_flows:
        jobs[0] = replace(jobs[0], new_flows=tuple(with_identity(flow, jobs) for flow in new_flows))
    if sibling_of is not None:
        _refuse_unique(jobs, {job.id for job in jobs})
        followed = {id for ids in prerequisites for id in ids}
        jobs = [job if job.id in followed else replace(job, sibling_of=sibling_of) for job in jobs]
    return jobs


def _refuse_unique(jobs: Sequence[NewJob], followed: Collection[str]) -> None:
    """Refuse unique jobs with prerequisites or dependents."""
    for job in jobs:
        if job.unique_mode is not None:
            check_unique_job(replace(job, unit=job.id) if job.id in followed else job)


def _is_independent(item: object) -> bool:
    return isinstance(item, Call) and item.options.after is None and item.options.flow is None


def _independent_jobs(calls: Sequence[Call], limit: int) -> list[NewJob]:
    """Rows of jobs without prerequisites, the common case: there is no graph to build."""
    jobs: list[NewJob] = []
    refused: list[tuple[int, InvalidArguments]] = []
    for number, (id, call) in enumerate(zip(new_job_ids(len(calls)), calls, strict=True)):
        try:
            jobs.append(call.definition.call(id, call.options, call.args, call.kwargs, limit))
        except InvalidArguments as error:
            refused.append((number, error))
    _refuse(refused, len(calls))
    return jobs


def _add_item(
    item: object, nodes: list[Node], new_flows: list[NewFlow], into_flow: str | None
) -> None:
    if isinstance(item, Call):
        nodes.append(_node(item))
        return
    if not isinstance(item, Group | Chain | Flow):
        given = "; give the items of a list as enqueue(*items)" if isinstance(item, list) else ""
        raise InvalidOption(
            option="jobs",
            reason="must be made with task.job(…), group(…), chain(…) or Flow(); number"
            f" {len(nodes)} is {item!r:.80}{given}",
        )
    builder = _GraphBuilder(into_flow or new_job_id(), new_job_id() if into_flow else None)
    if isinstance(item, Flow):
        builder.add_flow(item)
    else:
        builder.add_part(item, [])
    if (into_flow is None or item.key is not None) and builder.nodes:
        name = getattr(item, "name", None)
        new_flows.append(NewFlow(builder.unit, name, part_of=into_flow, key=item.key))
    new_flows += builder.fail_groups
    nodes += builder.nodes


class _GraphBuilder:
    """The jobs of one flow, added one after the other. Jobs that join an existing flow form a part
    of it, identified by `part`."""

    def __init__(self, flow: str, part: str | None = None) -> None:
        self.flow = flow
        self.unit = part or flow
        self.nodes: list[Node] = []
        self.fail_groups: list[NewFlow] = []

    def add_flow(self, flow: Flow) -> None:
        """Add copies of a flow's nodes, linked to each other: the flow may be enqueued again."""
        team = self._fail_group(flow.fail_after)
        self.nodes = [
            replace(node, fail_group=team, flow=self.flow, unit=self.unit) for node in flow.nodes
        ]
        copies = {id(node): copy for node, copy in zip(flow.nodes, self.nodes, strict=True)}
        for copy in self.nodes:
            own = as_list(copy.call.options.after)
            copy.after = [copies.get(id(one), one) for one in [*copy.after, *own]]
            copy.when = copy.when or copy.call.options.when

    def add_part(
        self, part: Any, after: list[object], team: str | None = None, when: str | None = None
    ) -> list[object]:
        """Add a part after other nodes and return its last nodes. An empty group returns the nodes
        that it follows."""
        _refuse_inner_keys(part)
        match part:
            case Group():
                team = team or self._fail_group(part.fail_after)
                ends = [self.add_part(one, after, team, when) for one in part.parts]
                return [node for end in ends for node in end] if ends else after
            case Chain():
                for n, (one, own) in enumerate(part.steps()):
                    after = self.add_part(one, after, team, own or (when if n == 0 else None))
                return after
            case _:
                node = _node(part)
                node.after, node.when = [*after, *node.after], when or node.when
                node.fail_group, node.flow, node.unit = team, self.flow, self.unit
                self.nodes.append(node)
                return [node]

    def _fail_group(self, fail_after: int | None) -> str | None:
        if fail_after is None:
            return None
        self.fail_groups.append(NewFlow(new_job_id(), None, self.flow, fail_after))
        return self.fail_groups[-1].id


def _refuse_inner_keys(part: object) -> None:
    for one in getattr(part, "parts", ()):
        if getattr(one, "key", None) is not None:
            raise InvalidOption(
                option="key",
                reason=f"belongs to the whole flow: the inner {type(one).__name__.lower()} with the"
                f" key {one.key!r} cannot have one of its own",
            )


def _node(call: Call) -> Node:
    options = call.options
    flow = None if options.flow is None else str(UUID(str(options.flow)))
    return Node(call, after=as_list(options.after), when=options.when, flow=flow)


def _resolve_prerequisites(nodes: Sequence[Node]) -> list[list[str]]:
    """For each node the ids of its prerequisites, without duplicates, in the order given."""
    by_object = {id(node): node.id for node in nodes} | {id(node.call): node.id for node in nodes}
    names: dict[tuple[object, str], str] = {}
    problems: list[Problem] = []
    for number, node in enumerate(nodes):
        if node.name is not None and names.setdefault((node.flow, node.name), node.id) != node.id:
            problems.append(Problem(_label(number, node), f"the name {node.name!r} is taken twice"))
    resolved: list[list[str]] = []
    for number, node in enumerate(nodes):
        ids: dict[str, None] = {}
        for one in node.after:
            id_ = by_object.get(id(one)) or _existing_id(one) or names.get((node.flow, str(one)))
            if id_ is None:
                problems.append(Problem(_label(number, node), f"comes after {_describe(one)}"))
            else:
                ids[id_] = None
        resolved.append(list(ids))
    if problems:
        raise InvalidFlow(problems)
    return resolved


def _existing_id(one: object) -> str | None:
    """The id of an existing job, if `one` names one."""
    if isinstance(one, Job):
        return one.id
    try:
        return str(UUID(one)) if isinstance(one, str) else None
    except ValueError:
        return None


def _describe(one: object) -> str:
    if isinstance(one, Call | Node):
        return "a job that is not among those enqueued here"
    return f"{one!r:.80}, which is neither a job of this flow nor the id of one"


def _refuse_cycles(nodes: Sequence[Node], prerequisites: Sequence[Sequence[str]]) -> None:
    cyclic = _in_cycles({node.id: ids for node, ids in zip(nodes, prerequisites, strict=True)})
    if cyclic:
        raise InvalidFlow(
            Problem(_label(number, node), IN_A_CYCLE)
            for number, node in enumerate(nodes)
            if node.id in cyclic
        )


def _in_cycles(prerequisites: Mapping[str, Iterable[str]]) -> Collection[str]:
    """Repeatedly remove nodes without remaining prerequisites; the rest are cycles and their
    dependents."""
    unresolved = {
        id: {one for one in ids if one in prerequisites} for id, ids in prerequisites.items()
    }
    followers: dict[str, list[str]] = {}
    for follower, waits in unresolved.items():
        for one in waits:
            followers.setdefault(one, []).append(follower)
    free = [id for id, waits in unresolved.items() if not waits]
    while free:
        done = free.pop()
        del unresolved[done]
        for follower in followers.get(done, ()):
            unresolved[follower].discard(done)
            if not unresolved[follower]:
                free.append(follower)
    return unresolved


def merge_duplicates(jobs: Sequence[NewJob], replacements: Mapping[str, str]) -> list[NewJob]:
    """Replace jobs of a call by others of it with the same keys: dependents of a replaced job wait
    for its replacement, once."""
    after = {
        job.id: tuple(dict.fromkeys(replacements.get(a, a) for a in job.after)) for job in jobs
    }
    if cyclic := _in_cycles(after):
        raise InvalidFlow(
            Problem(f"the job of key {job.key!r} ({job.task})", IN_A_CYCLE)
            for job in jobs
            if job.id in cyclic and job.id in replacements.values()
        )
    followed = {one for ids in after.values() for one in ids}
    return [
        replace(
            job,
            after=after[job.id],
            waits_for=min(job.waits_for, len(after[job.id])),
            quorum=job.quorum and min(job.quorum, len(after[job.id])),
            tied=job.tied or job.id in followed,
        )
        for job in jobs
    ]


def _refuse_too_many_edges(prerequisites: Sequence[Sequence[str]]) -> None:
    number = sum(map(len, prerequisites))
    if number > MAX_EDGES:
        raise InvalidOption(
            option="flow",
            reason=f"has {number:,} pairs of jobs that wait for each other, and {MAX_EDGES:,} are"
            " allowed: put one job between two large groups",
        )


def _rows(
    nodes: Sequence[Node], prerequisites: Sequence[list[str]], into_flow: str | None, limit: int
) -> list[NewJob]:
    followed = {id for ids in prerequisites for id in ids}
    jobs: list[NewJob] = []
    refused: list[tuple[int, InvalidArguments]] = []
    for number, (node, after) in enumerate(zip(nodes, prerequisites, strict=True)):
        try:
            job = node.call.new_job(node.id, limit)
        except InvalidArguments as error:
            refused.append((number, error))
            continue
        quorum = (
            None if node.quorum is None else max(1, math.ceil(round(node.quorum * len(after), 6)))
        )
        jobs.append(
            replace(
                job,
                flow=node.flow or (None if job.unique_mode else into_flow),
                team=node.fail_group,
                needs=node.when or "succeeded",
                after=tuple(after),
                quorum=quorum if after else None,
                waits_for=min(quorum or len(after), len(after)),
                tied=bool(job.hooks or node.fail_group or node.id in followed),
                unit=node.unit,
            )
        )
    _refuse(refused, len(nodes))
    _refuse_unique(jobs, followed)
    return jobs


def _refuse(refused: Sequence[tuple[int, InvalidArguments]], number: int) -> None:
    if len(refused) == 1:
        raise refused[0][1]
    if refused:
        problems = [
            Problem(f"job {index} ({error.facts['task']}): {path}", message)
            for index, error in refused
            for path, message in error.problems
        ]
        raise InvalidArguments(f"{len(refused)} of {number} jobs", problems)


def _label(number: int, node: Node) -> str:
    name = f" {node.name!r}" if node.name else ""
    return f"job {number}{name} ({node.call.definition.name})"
