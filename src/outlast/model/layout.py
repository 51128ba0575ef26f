"""Calls, groups, chains and flows as rows: each job with the ids of those it waits for.

Everything of one call is laid out here, whole, before anything is inserted. The database only
counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from .arguments import MAX_PAYLOAD
from .errors import InvalidArguments, InvalidFlow, InvalidOption, Problem
from .flow import Chain, Flow, Group, Node, listed
from .flow_key import with_identity
from .ids import new_job_id
from .job import Job, NewFlow, NewJob
from .task import Call

IN_A_CYCLE = "is part of a cycle, or comes after one"
MOST_EDGES = 200_000  # of one call: a group of hundreds after a group of hundreds has too many


def new_jobs(
    items: Iterable[Any],
    within: str | None = None,
    beside: str | None = None,
    limit: int = MAX_PAYLOAD,
) -> list[NewJob]:
    """Everything of one call as rows, in the order given; if anything is wrong, one error names
    every problem. `within` is a flow that stands already: what comes joins it. Whoever waits for
    the job `beside` is to wait for what comes last here, too. `limit`: bytes of one's arguments."""
    items = list(items)
    if within is None and beside is None and all(map(_stands_alone, items)):
        return _by_themselves(items, limit)
    nodes: list[Node] = []
    founded: list[NewFlow] = []
    for item in items:
        _lay_item(item, nodes, founded, within)
    for node in nodes:
        node.id = new_job_id()
    prerequisites = _resolved(nodes)
    _refuse_cycles(nodes, prerequisites)
    _refuse_crowds(prerequisites)
    jobs = _rows(nodes, prerequisites, within, limit)
    if jobs and founded:
        jobs[0] = replace(jobs[0], founds=tuple(with_identity(flow, jobs) for flow in founded))
    if beside is not None:
        followed = {id for ids in prerequisites for id in ids}
        jobs = [job if job.id in followed else replace(job, joins=beside) for job in jobs]
    return jobs


def _stands_alone(item: Any) -> bool:
    return isinstance(item, Call) and item.options.after is None and item.options.flow is None


def _by_themselves(calls: Sequence[Call], limit: int) -> list[NewJob]:
    """Jobs that are tied to nothing, as most are: there is nothing to lay out."""
    jobs: list[NewJob] = []
    refused: list[tuple[int, InvalidArguments]] = []
    for number, call in enumerate(calls):
        try:
            jobs.append(call.new_job(None, limit))
        except InvalidArguments as error:
            refused.append((number, error))
    _refuse(refused, len(calls))
    return jobs


def _lay_item(item: Any, nodes: list[Node], founded: list[NewFlow], within: str | None) -> None:
    if isinstance(item, Call):
        nodes.append(_node(item))
        return
    if not isinstance(item, Group | Chain | Flow):
        raise InvalidOption(
            option="jobs",
            reason="must be made with task.job(…), group(…), chain(…) or Flow(); number"
            f" {len(nodes)} is {item!r:.80}",
        )
    laid = _Laid(within or new_job_id(), new_job_id() if within else None)
    if isinstance(item, Flow):
        laid.graph(item)
    else:
        laid.put(item, [])
    if (within is None or item.key is not None) and laid.nodes:
        name = getattr(item, "name", None)
        founded.append(NewFlow(laid.whole, name, part_of=within, key=item.key))
    founded += laid.teams
    nodes += laid.nodes


class _Laid:
    """The jobs of one flow, as they are put one after the other. What joins a flow that exists is
    a part of that flow; `whole` identifies the part."""

    def __init__(self, flow: str, part: str | None = None) -> None:
        self.flow = flow
        self.whole = part or flow
        self.nodes: list[Node] = []
        self.teams: list[NewFlow] = []

    def graph(self, flow: Flow) -> None:
        """A flow may be enqueued twice: its nodes are copied, and their links go to the copies."""
        team = self._team(flow.fail_after)
        self.nodes = [
            replace(node, team=team, flow=self.flow, whole=self.whole) for node in flow.nodes
        ]
        copies = {id(node): copy for node, copy in zip(flow.nodes, self.nodes, strict=True)}
        for copy in self.nodes:
            own = listed(copy.call.options.after)
            copy.after = [copies.get(id(one), one) for one in [*copy.after, *own]]
            copy.when = copy.when or copy.call.options.when

    def put(
        self, part: Any, after: list[Any], team: str | None = None, when: str | None = None
    ) -> list[Any]:
        """Put a part after others; return what comes last in it. An empty group passes on what it
        should have come after."""
        _refuse_inner_keys(part)
        match part:
            case Group():
                team = team or self._team(part.fail_after)
                ends = [self.put(one, after, team, when) for one in part.parts]
                return [node for end in ends for node in end] if ends else after
            case Chain():
                for n, (one, own) in enumerate(part.steps()):
                    after = self.put(one, after, team, own or (when if n == 0 else None))
                return after
            case _:
                node = _node(part)
                node.after, node.when = [*after, *node.after], when or node.when
                node.team, node.flow, node.whole = team, self.flow, self.whole
                self.nodes.append(node)
                return [node]

    def _team(self, fail_after: int | None) -> str | None:
        if fail_after is None:
            return None
        self.teams.append(NewFlow(new_job_id(), None, self.flow, fail_after))
        return self.teams[-1].id


def _refuse_inner_keys(part: Any) -> None:
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
    return Node(call, after=listed(options.after), when=options.when, flow=flow)


def _resolved(nodes: Sequence[Node]) -> list[list[str]]:
    """For each node the ids of those it waits for, once each, in the order given."""
    by_object = {id(node): node.id for node in nodes} | {id(node.call): node.id for node in nodes}
    names: dict[tuple[Any, str], str] = {}
    problems: list[Problem] = []
    for number, node in enumerate(nodes):
        if node.name is not None and names.setdefault((node.flow, node.name), node.id) != node.id:
            problems.append(Problem(_place(number, node), f"the name {node.name!r} is taken twice"))
    found: list[list[str]] = []
    for number, node in enumerate(nodes):
        ids: dict[str, None] = {}
        for one in node.after:
            id_ = by_object.get(id(one)) or _standing(one) or names.get((node.flow, str(one)))
            if id_ is None:
                problems.append(Problem(_place(number, node), f"comes after {_told(one)}"))
            else:
                ids[id_] = None
        found.append(list(ids))
    if problems:
        raise InvalidFlow(problems)
    return found


def _standing(one: Any) -> str | None:
    """The id of a job that exists already, if this names one."""
    if isinstance(one, Job):
        return one.id
    try:
        return str(UUID(one)) if isinstance(one, str) else None
    except ValueError:
        return None


def _told(one: Any) -> str:
    if isinstance(one, Call | Node):
        return "a job that is not among those enqueued here"
    return f"{one!r:.80}, which is neither a job of this flow nor the id of one"


def _refuse_cycles(nodes: Sequence[Node], prerequisites: Sequence[Sequence[str]]) -> None:
    left = _in_cycles({node.id: ids for node, ids in zip(nodes, prerequisites, strict=True)})
    if left:
        raise InvalidFlow(
            Problem(_place(number, node), IN_A_CYCLE)
            for number, node in enumerate(nodes)
            if node.id in left
        )


def _in_cycles(prerequisites: Mapping[str, Iterable[str]]) -> Collection[str]:
    """Take away, again and again, whatever waits for nothing that is left: the rest is cycles, and
    what comes after them."""
    left = {id: set(ids) for id, ids in prerequisites.items()}
    for waits in left.values():
        waits.intersection_update(left)
    followers: dict[str, list[str]] = {}
    for follower, waits in left.items():
        for one in waits:
            followers.setdefault(one, []).append(follower)
    free = [id for id, waits in left.items() if not waits]
    while free:
        gone = free.pop()
        del left[gone]
        for follower in followers.get(gone, ()):
            left[follower].discard(gone)
            if not left[follower]:
                free.append(follower)
    return left


def merged(jobs: Sequence[NewJob], instead: Mapping[str, str]) -> list[NewJob]:
    """Some jobs of one call stand for others of it, which have the same keys: whoever comes after
    one of those comes after the one that stands for it, and waits for it once."""
    after = {job.id: tuple(dict.fromkeys(instead.get(a, a) for a in job.after)) for job in jobs}
    if left := _in_cycles(after):
        raise InvalidFlow(
            Problem(f"the job of key {job.key!r} ({job.task})", IN_A_CYCLE)
            for job in jobs
            if job.id in left and job.id in instead.values()
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


def _refuse_crowds(prerequisites: Sequence[Sequence[str]]) -> None:
    number = sum(map(len, prerequisites))
    if number > MOST_EDGES:
        raise InvalidOption(
            option="flow",
            reason=f"has {number:,} pairs of jobs that wait for each other, and {MOST_EDGES:,} are"
            " allowed: put one job between two large groups",
        )


def _rows(
    nodes: Sequence[Node], prerequisites: Sequence[list[str]], within: str | None, limit: int
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
                flow=node.flow or within,
                team=node.team,
                needs=node.when or "succeeded",
                after=tuple(after),
                quorum=quorum if after else None,
                waits_for=min(quorum or len(after), len(after)),
                tied=bool(job.hooks or node.team or node.id in followed),
                whole=node.whole,
            )
        )
    _refuse(refused, len(nodes))
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


def _place(number: int, node: Node) -> str:
    name = f" {node.name!r}" if node.name else ""
    return f"job {number}{name} ({node.call.definition.name})"
