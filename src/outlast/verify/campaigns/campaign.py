"""Base of all campaigns: workspace, children, results, stop conditions and clean-up."""

from __future__ import annotations

import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...model.errors import InvalidOption
from ...store.statements import queries
from ..checks.checker import Violation
from ..checks.judge import Verdict
from ..children import ChildExit, ChildFailed, Children, freeze_memory
from ..faults.points import FaultPoint
from ..results import CampaignResults
from ..scenarios import SCENARIOS, Scenario
from ..workload import Workload
from ..workspace import Workspace, WorkspaceFactory, cleaned_up

DEFAULT_BUDGET_S = 60.0


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """The options of a campaign."""

    url: str | None = None
    schema: str | None = None
    seed: int | None = None
    points: int | None = None
    budget: float | None = None
    paths: tuple[str, ...] = ()
    at_once: int | None = None
    keep: bool = False
    first: bool = False  # stop at the first violation


class Campaign(ABC):
    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    goal: ClassVar[str]
    settings: ClassVar[dict[str, object]] = {}  # of the store
    owners_only: ClassVar[bool] = False  # whether to run only scenarios of owners

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        self.options = options
        self.on_progress = on_progress
        self.seed = random.randrange(10**6) if options.seed is None else options.seed
        self.budget = options.budget
        if options.budget is None and options.points is None:
            self.budget = DEFAULT_BUDGET_S
        self.max_children = options.at_once or max(3, (os.cpu_count() or 2) + 1)
        self.scenarios = self._selected_scenarios()
        self.workspaces = WorkspaceFactory(options.url, options.schema)
        self.results = CampaignResults(
            self.name, str(self.workspaces), self.seed, self.columns, self.goal
        )
        self.points_started = 0
        self.running = 0  # children that run a scenario now
        self._next: list[Workspace] = []
        self._stops: list[int] = []

    def run(self) -> CampaignResults:
        """Run, and always clean up."""
        with cleaned_up(self.clean_up):
            try:
                with stop_signals() as self._stops:
                    self._run()
            except KeyboardInterrupt:
                self.results.interrupted = True
        return self.results

    def _run(self) -> None:
        self.work = Workload(self.workspaces.next(), **self.settings)
        self.work.warm_up()
        self.children = Children(self.workspaces.folder / "noise")
        freeze_memory()
        try:
            self.campaign()
        finally:
            self.children.kill_all()

    def clean_up(self) -> None:
        self.results.close()
        if not self.options.keep:
            self.workspaces.remove()

    @abstractmethod
    def campaign(self) -> None: ...

    def is_over(self) -> bool:
        """Whether the campaign has reached its goal."""
        if self.options.first and self.results.violations:
            return True
        elapsed = time.monotonic() - self.results.began
        if self.budget is not None and elapsed >= self.budget:
            return True
        return self.options.points is not None and self.points_started >= self.options.points

    def wait_for_child(self) -> None:
        if self._stops:
            raise KeyboardInterrupt
        self.children.wait()
        self.on_progress(self.results)

    def start_child(self, body: Callable[[], None], then: Callable[[ChildExit], None]) -> int:
        """Start a child with a scenario, when a slot is free."""
        while self.running >= self.max_children:
            self.wait_for_child()
        self.running += 1
        return self.children.start(body, then)

    # Workspaces

    def next_workspace(self) -> Workspace:
        """The workspace of the next batch; the one after it is prepared meanwhile."""
        if not self._next:
            self._prepare_next()
        workspace = self._next.pop()
        while not workspace.ready_file.exists():
            self.wait_for_child()
        self._prepare_next()
        self.work.use_prepared(workspace)
        return workspace

    def _prepare_next(self) -> None:
        workspace = self.workspaces.next()
        # Translated once here, not in every child.
        queries(self.workspaces.address.dialect, workspace.schema).all()
        self._next.append(workspace)
        self.children.start(partial(prepare, self.work, workspace), self._prepared)

    def _prepared(self, exit: ChildExit) -> None:
        if not exit.ok:
            raise ChildFailed(self.children.stderr_tail())

    # Violations

    def record_verdict(
        self, workspace: Workspace, labels: dict[str, FaultPoint], exit: ChildExit
    ) -> Verdict | None:
        """Record the checker's report on a workspace; None if it failed."""
        if not exit.ok:
            self.results.add_violation("the judge", "judge", self.children.stderr_tail())
            return None
        verdict = Verdict.read(workspace.verdict_file)
        self.results.jobs += verdict.jobs
        for violation in verdict.violations:
            self._record_violation(labels, violation)
        return verdict

    def _record_violation(self, labels: dict[str, FaultPoint], violation: Violation) -> None:
        point = labels.get(violation.queue)
        where, path = (str(point), point.scenario) if point else ("somewhere", "somewhere")
        self.results.add_violation(where, path, str(violation))

    def record_failure(self, where: str, point: FaultPoint, exit: ChildExit) -> None:
        how = f"signal {exit.signal}" if exit.signal else f"exit code {exit.code}"
        self.results.add_violation(where, point.scenario, f"{how}: {self.children.stderr_tail()}")

    def _selected_scenarios(self) -> list[Scenario]:
        known = {
            name: path for name, path in SCENARIOS.items() if path.owner or not self.owners_only
        }
        for name in self.options.paths:
            if name not in known:
                raise InvalidOption(
                    option="path", reason=f"must be one of {', '.join(sorted(known))}, not {name!r}"
                )
        return [known[name] for name in self.options.paths or known]


def prepare(work: Workload, workspace: Workspace) -> None:
    """In a child: create the tables of a workspace."""
    work.move_to(workspace).prepare()


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """End a campaign on SIGTERM as on Ctrl-C: everything that it created is removed. Received
    signals are also listed, because Python drops exceptions that are raised while it forks."""
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
