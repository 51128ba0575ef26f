"""Random graphs of jobs, each with a description of the edges that were requested.

    chain     one after the other              group    a fan-in of 0 to 1,000 children
    nested    groups of groups and chains      graph    any order without a cycle, with milestones
    crawl     children that add children       late     comes after existing jobs

Most fan-ins are small, because ten thousand of them have to fit into minutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model.flow import Chain, Flow, Group, chain, group
from ..model.options import Options
from ..model.task import Call
from ..task import BoundTask
from .flow_tasks import FlowTasks

# (from, to) children, and the number of such groups in a thousand
GROUP_SIZES = (((0, 0), 20), ((1, 4), 750), ((5, 15), 195), ((16, 60), 28), ((100, 400), 5),
         ((1000, 1000), 2))  # fmt: skip
TASK_KINDS = (("ok", 88), ("naps", 5), ("fails", 4), ("dies", 3))
SHAPES = (("group", 62), ("chain", 8), ("nested", 12), ("graph", 10), ("crawl", 8))
LARGE_GROUP = 100  # children; in larger groups hardly any may die, or the fan-in would never run
HOOK_SHARE, THREAD_SHARE, ANY_END_SHARE, FAIL_FAST_SHARE = 0.04, 0.05, 0.3, 0.12


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One requested job, identified by its tag until its id is known."""

    tag: str
    kind: str
    after: tuple[str, ...] = ()  # tags
    hooks: tuple[str, ...] = ()
    quorum: float | None = None


@dataclass(slots=True)
class PlannedGraph:
    shape: str
    item: Any  # to enqueue
    nodes: list[PlannedJob] = field(default_factory=list)
    fan_ins: list[int] = field(default_factory=list)  # by number of children


class GraphGenerator:
    """Generates graphs; `name` makes its tags unique."""

    def __init__(self, tasks: FlowTasks, rng: random.Random, name: str) -> None:
        self.tasks, self.rng, self.name = tasks, rng, name
        self._tags = 0
        self._shapes: dict[str, Callable[[PlannedGraph], Any]] = {
            "group": self._group, "chain": self._chain, "nested": self._nested,
            "graph": self._graph, "crawl": self._crawl,
        }  # fmt: skip

    def generate(self) -> PlannedGraph:
        shape = self._weighted_choice(SHAPES)
        plan = PlannedGraph(shape, None)
        plan.item = self._shapes[shape](plan)
        return plan

    def after_existing(self, existing: Sequence[str]) -> PlannedGraph:
        """A graph after existing jobs, by their ids."""
        plan = PlannedGraph("late", None, fan_ins=[len(existing)])
        call = self._call(plan, existing)
        plan.item = call.using(Options(after=list(existing), when=self._when()))
        return plan

    # Shapes

    def _group(self, plan: PlannedGraph) -> Chain:
        (low, high) = self._weighted_choice(GROUP_SIZES)
        children, tags = self._calls(plan, self.rng.randint(low, high))
        joined = group(*children, fail_fast=self._fail_fast())
        return joined.then(self._follower(plan, tags), when=self._when())

    def _chain(self, plan: PlannedGraph) -> Chain:
        tags: list[str] = []
        links = []
        for _ in range(self.rng.randint(2, 5)):
            links.append(self._call(plan, tags))
            tags = [plan.nodes[-1].tag]
        return chain(*links)

    def _nested(self, plan: PlannedGraph) -> Chain:
        """Nested fan-ins and chains in parallel, and one job that waits for all of them."""
        parts: list[Any] = []
        ends: list[str] = []
        for _ in range(self.rng.randint(1, 4)):
            children, tags = self._calls(plan, self.rng.randint(1, 4))
            if self.rng.random() < 0.3:
                parts.append(group(*children))
                ends += tags
                continue
            inner = self._follower(plan, tags)
            parts.append(group(*children).then(inner, when=self._when()))
            ends.append(plan.nodes[-1].tag)
        outer = Group(*parts, fail_fast=self._fail_fast())
        return outer.then(self._follower(plan, ends), when=self._when())

    def _graph(self, plan: PlannedGraph) -> Flow:
        flow = Flow(fail_fast=self._fail_fast())
        nodes: list[Any] = []
        for number in range(self.rng.randint(2, 14)):
            before = self.rng.sample(range(number), min(number, self.rng.randint(0, 3)))
            call = self._call(plan, [plan.nodes[n].tag for n in before])
            if len(before) > 1:
                plan.fan_ins.append(len(before))
            nodes.append(flow.add(call, after=[nodes[n] for n in before], when=self._when()))
        before_it = [node.tag for node in plan.nodes]
        for share in sorted(self.rng.sample((0.1, 0.25, 0.5, 0.9, 1.0), self.rng.randint(0, 2))):
            flow.milestone(share, self._call(plan, before_it, share))
        return flow

    def _crawl(self, plan: PlannedGraph) -> Chain:
        calls, tags = self._calls(plan, self.rng.randint(0, 3))
        for _ in range(self.rng.randint(1, 2)):
            tag = self._tag()
            widths = [self.rng.randint(1, 3) for _ in range(self.rng.randint(1, 2))]
            calls.append(self.tasks.crawl.job(tag, widths))
            plan.nodes.append(PlannedJob(tag, "ok"))
            tags.append(tag)
        return group(*calls).then(self._follower(plan, tags), when=self._when())

    # Jobs

    def _calls(self, plan: PlannedGraph, number: int) -> tuple[list[Call], list[str]]:
        calls = [self._call(plan, reliable=number >= LARGE_GROUP) for _ in range(number)]
        return calls, [node.tag for node in plan.nodes[len(plan.nodes) - number :]]

    def _follower(self, plan: PlannedGraph, tags: Sequence[str]) -> Call:
        if tags:
            plan.fan_ins.append(len(tags))
        return self._call(plan, tags)

    def _call(
        self, plan: PlannedGraph, after: Sequence[str] = (), quorum: float | None = None,
        *, reliable: bool = False,
    ) -> Call:  # fmt: skip
        tag, kind = self._tag(), self._weighted_choice(TASK_KINDS)
        if reliable and kind == "dies" and self.rng.random() > 0.1:
            kind = "ok"
        task: BoundTask = self.tasks.step
        if after or quorum:
            in_thread = self.rng.random() < THREAD_SHARE
            task = self.tasks.gather_in_thread if in_thread else self.tasks.gather
        hooks: tuple[str, ...] = ()
        if self.rng.random() < HOOK_SHARE:
            hooks = ("succeeded", "dead", "cancelled")[self.rng.randint(0, 1) :]
            made: Any = {f"on_{_ENDS[on]}": self.tasks.hook.job(tag, on) for on in hooks}
            task = task.using(**made)
        plan.nodes.append(PlannedJob(tag, kind, tuple(after), hooks, quorum))
        return task.job(tag, kind)

    def _tag(self) -> str:
        self._tags += 1
        return f"{self.name}-{self._tags}"

    def _when(self) -> str | None:
        return "finished" if self.rng.random() < ANY_END_SHARE else None

    def _fail_fast(self) -> bool | int:
        return self.rng.choice((True, 2)) if self.rng.random() < FAIL_FAST_SHARE else False

    def _weighted_choice(self, weighted: Sequence[tuple[Any, int]]) -> Any:
        return self.rng.choices([one for one, _ in weighted], [weight for _, weight in weighted])[0]


_ENDS = {"succeeded": "success", "dead": "dead", "cancelled": "cancel"}
