"""Random graphs of jobs, each with what was asked for written down beside it.

    chain     one after the other              group    a fan-in of 0 to 1,000 children
    nested    groups of groups and chains      graph    any order without a cycle, with milestones
    crawl     children that add children       late     comes after jobs that stand already

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
from ..tasks import Prepared
from .flow_tasks import FlowTasks

# (from, to) children, and how often in a thousand groups
SIZES = (((0, 0), 20), ((1, 4), 750), ((5, 15), 195), ((16, 60), 28), ((100, 400), 5),
         ((1000, 1000), 2))  # fmt: skip
KINDS = (("ok", 88), ("naps", 5), ("fails", 4), ("dies", 3))
SHAPES = (("group", 62), ("chain", 8), ("nested", 12), ("graph", 10), ("crawl", 8))
BIG = 100  # children from which on hardly any may die, or no such fan-in would ever run
HOOKED, IN_THREAD, FINISHED, FAIL_FAST = 0.04, 0.05, 0.3, 0.12


@dataclass(frozen=True, slots=True)
class Asked:
    """One job as it was asked for, known by its tag until its id is known."""

    tag: str
    kind: str
    after: tuple[str, ...] = ()  # tags
    hooks: tuple[str, ...] = ()
    quorum: float | None = None


@dataclass(slots=True)
class Sketch:
    shape: str
    item: Any  # what is enqueued
    nodes: list[Asked] = field(default_factory=list)
    fan_ins: list[int] = field(default_factory=list)  # by their number of children


class Artist:
    """Draws graphs; `name` keeps its tags apart from those of others."""

    def __init__(self, tasks: FlowTasks, luck: random.Random, name: str) -> None:
        self.tasks, self.luck, self.name = tasks, luck, name
        self._tags = 0
        self._shapes: dict[str, Callable[[Sketch], Any]] = {
            "group": self._group, "chain": self._chain, "nested": self._nested,
            "graph": self._graph, "crawl": self._crawl,
        }  # fmt: skip

    def draw(self) -> Sketch:
        shape = self._chosen(SHAPES)
        sketch = Sketch(shape, None)
        sketch.item = self._shapes[shape](sketch)
        return sketch

    def late(self, standing: Sequence[str]) -> Sketch:
        """After jobs that stand already, by their ids."""
        sketch = Sketch("late", None, fan_ins=[len(standing)])
        call = self._call(sketch, standing)
        sketch.item = call.using(Options(after=list(standing), when=self._when()))
        return sketch

    # Shapes

    def _group(self, sketch: Sketch) -> Chain:
        (low, high) = self._chosen(SIZES)
        children, tags = self._several(sketch, self.luck.randint(low, high))
        joined = group(*children, fail_fast=self._fail_fast())
        return joined.then(self._follower(sketch, tags), when=self._when())

    def _chain(self, sketch: Sketch) -> Chain:
        tags: list[str] = []
        links = []
        for _ in range(self.luck.randint(2, 5)):
            links.append(self._call(sketch, tags))
            tags = [sketch.nodes[-1].tag]
        return chain(*links)

    def _nested(self, sketch: Sketch) -> Chain:
        """Inner fan-ins and chains side by side, and one that waits for all of their ends."""
        parts: list[Any] = []
        ends: list[str] = []
        for _ in range(self.luck.randint(1, 4)):
            children, tags = self._several(sketch, self.luck.randint(1, 4))
            if self.luck.random() < 0.3:
                parts.append(group(*children))
                ends += tags
                continue
            inner = self._follower(sketch, tags)
            parts.append(group(*children).then(inner, when=self._when()))
            ends.append(sketch.nodes[-1].tag)
        outer = Group(*parts, fail_fast=self._fail_fast())
        return outer.then(self._follower(sketch, ends), when=self._when())

    def _graph(self, sketch: Sketch) -> Flow:
        flow = Flow(fail_fast=self._fail_fast())
        nodes: list[Any] = []
        for number in range(self.luck.randint(2, 14)):
            before = self.luck.sample(range(number), min(number, self.luck.randint(0, 3)))
            call = self._call(sketch, [sketch.nodes[n].tag for n in before])
            if len(before) > 1:
                sketch.fan_ins.append(len(before))
            nodes.append(flow.add(call, after=[nodes[n] for n in before], when=self._when()))
        before_it = [node.tag for node in sketch.nodes]
        for share in sorted(self.luck.sample((0.1, 0.25, 0.5, 0.9, 1.0), self.luck.randint(0, 2))):
            flow.milestone(share, self._call(sketch, before_it, share))
        return flow

    def _crawl(self, sketch: Sketch) -> Chain:
        calls, tags = self._several(sketch, self.luck.randint(0, 3))
        for _ in range(self.luck.randint(1, 2)):
            tag = self._tag()
            widths = [self.luck.randint(1, 3) for _ in range(self.luck.randint(1, 2))]
            calls.append(self.tasks.crawl.job(tag, widths))
            sketch.nodes.append(Asked(tag, "ok"))
            tags.append(tag)
        return group(*calls).then(self._follower(sketch, tags), when=self._when())

    # Jobs

    def _several(self, sketch: Sketch, number: int) -> tuple[list[Call], list[str]]:
        calls = [self._call(sketch, calm=number >= BIG) for _ in range(number)]
        return calls, [node.tag for node in sketch.nodes[len(sketch.nodes) - number :]]

    def _follower(self, sketch: Sketch, tags: Sequence[str]) -> Call:
        if tags:
            sketch.fan_ins.append(len(tags))
        return self._call(sketch, tags)

    def _call(
        self, sketch: Sketch, after: Sequence[str] = (), quorum: float | None = None,
        *, calm: bool = False,
    ) -> Call:  # fmt: skip
        tag, kind = self._tag(), self._chosen(KINDS)
        if calm and kind == "dies" and self.luck.random() > 0.1:
            kind = "ok"
        task: Prepared = self.tasks.step
        if after or quorum:
            in_thread = self.luck.random() < IN_THREAD
            task = self.tasks.gather_in_thread if in_thread else self.tasks.gather
        hooks: tuple[str, ...] = ()
        if self.luck.random() < HOOKED:
            hooks = ("succeeded", "dead", "cancelled")[self.luck.randint(0, 1) :]
            made = {f"on_{_ENDS[on]}": self.tasks.hook.job(tag, on) for on in hooks}
            task = task.using(**made)
        sketch.nodes.append(Asked(tag, kind, tuple(after), hooks, quorum))
        return task.job(tag, kind)

    def _tag(self) -> str:
        self._tags += 1
        return f"{self.name}-{self._tags}"

    def _when(self) -> str | None:
        return "finished" if self.luck.random() < FINISHED else None

    def _fail_fast(self) -> bool | int:
        return self.luck.choice((True, 2)) if self.luck.random() < FAIL_FAST else False

    def _chosen(self, weighed: Sequence[tuple[Any, int]]) -> Any:
        return self.luck.choices([one for one, _ in weighed], [weight for _, weight in weighed])[0]


_ENDS = {"succeeded": "success", "dead": "dead", "cancelled": "cancel"}
