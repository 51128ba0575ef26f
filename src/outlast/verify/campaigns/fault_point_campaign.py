"""Base of campaigns that inject a fault at one point of a scenario, then check the recovery.

    trace     run each scenario once, and count its fault points
    inject    one child per point: it prepares, acts, and meets the fault there
    recover   after each batch: a worker runs until all jobs are settled, then the checker decides

A batch recovers while the next one runs in another workspace.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

from ..checks.checker import Violation
from ..checks.judge import recover
from ..children import ChildExit
from ..faults.points import FaultPoint, PointDeck, batches, rounds
from ..scenarios import SCENARIOS
from ..workload import Workload
from ..workspace import Workspace
from .campaign import Campaign
from .count_points import Labels, PointCounter, Tracer

BATCH_SIZE = 150  # faults per workspace
LEASE_S = 1.0  # seconds until the job of an interrupted owner can be reclaimed
MAX_RECOVERING = 3  # batches that recover while the next ones run


class FaultCampaign(Campaign):
    repeats: ClassVar[int] = 1  # faults per point of a short scenario and round

    def campaign(self) -> None:
        self._recovering = 0
        rng = random.Random(self.seed)
        traced = PointCounter(self, LEASE_S, self._recover, self.tracer()).run()
        decks = []
        for name, exchanges in sorted(traced.items()):
            points = self.points(name, exchanges)
            self.results.counts_of(name).points = len(points)
            max_points = SCENARIOS[name].max_points
            decks.append(
                PointDeck([*points] * (1 if max_points else self.repeats), max_points, rng)
            )
        for dealt in rounds(decks, rng) if any(deck.points for deck in decks) else ():
            for batch in batches(dealt, BATCH_SIZE):
                if not self.is_over():
                    self._run_batch(batch)
            if self.is_over():
                break
        while self._recovering:
            self.wait_for_child()

    @abstractmethod
    def tracer(self) -> Tracer:
        """Work of a child that runs a scenario only to count its points."""

    @abstractmethod
    def points(self, scenario: str, exchanges: Sequence[str]) -> Sequence[FaultPoint]:
        """The fault points of a scenario with these exchanges."""

    @abstractmethod
    def start_walk(self, workspace: Workspace, labels: Labels) -> None:
        """Start the children of a workspace."""

    def _run_batch(self, batch: list[FaultPoint]) -> None:
        workspace = self.next_workspace()
        labels: Labels = {}
        for points in self.child_batches(batch):
            if self.is_over():
                break
            new_labels = {f"p{len(labels) + number}": point for number, point in enumerate(points)}
            labels |= new_labels
            self.points_started += len(new_labels)
            self.start_walk(workspace, new_labels)
        while self.running:
            self.wait_for_child()
        self._recover(workspace, labels)

    def child_batches(self, batch: list[FaultPoint]) -> Iterator[list[FaultPoint]]:
        """Work of one child: one point, unless it survives."""
        return ([point] for point in batch)

    def survived(self, point: FaultPoint) -> None:
        """Discard a point: its scenario ended before the fault."""
        self.results.counts_of(point.scenario).add("survived")
        self.points_started -= 1

    def _recover(self, workspace: Workspace, labels: Labels) -> None:
        while self._recovering >= MAX_RECOVERING:
            self.wait_for_child()
        self._recovering += 1
        body = partial(recover_batch, self.work, workspace, labels, self.options.keep, self.examine)
        self.children.start(body, partial(self._recovered, workspace, labels))

    def _recovered(self, workspace: Workspace, labels: Labels, exit: ChildExit) -> None:
        self._recovering -= 1
        self.record_verdict(workspace, labels, exit)

    def examine(self, workspace: Workspace) -> Iterable[Violation]:
        """In the child that checks: additional violations."""
        return ()


class OneFaultPerChild(FaultCampaign):
    """One child per point, which must not survive it."""

    @abstractmethod
    def walk(self, label: str, point: FaultPoint) -> Callable[[], None]:
        """Work of a child that meets a fault at one point."""

    @abstractmethod
    def record_exit(self, point: FaultPoint, exit: ChildExit) -> None:
        """Record how the child ended."""

    def start_walk(self, workspace: Workspace, labels: Labels) -> None:
        for label, point in labels.items():
            self.start_child(self.walk(label, point), partial(self._ended, point))

    def _ended(self, point: FaultPoint, exit: ChildExit) -> None:
        self.running -= 1
        self.record_exit(point, exit)


def recover_batch(
    work: Workload,
    workspace: Workspace,
    labels: Labels,
    keep: bool,
    examine: Callable[[Workspace], Iterable[Violation]],
) -> None:
    """In a child: recover a batch; its workspace is then removed unless it is to be kept."""
    verdict = recover(work.move_to(workspace), labels, LEASE_S)
    verdict.violations += examine(workspace)
    verdict.write(workspace.verdict_file)
    if not keep:
        workspace.remove()
