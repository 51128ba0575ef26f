"""`outlast verify ackloss`: the server commits, and its response is lost with the connection.

Each scenario runs once to count its commits. Then, for each commit, a child runs the scenario
through a proxy that drops the response to that commit and resets the connection. The client cannot
know whether it committed: Outlast must retry, and the retry must neither repeat the work nor report
a lost claim. In the caller's own transaction, the caller gets an error, and the commit stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

from ..children import ChildExit
from ..faults.interceptor import Interceptor
from ..faults.points import FaultPoint
from ..faults.postgres_wire import CommitInspector
from ..faults.proxied_connection import Upstream
from ..scenario_context import ScenarioContext
from ..scenarios import SCENARIOS, run_scenario
from ..workload import Workload
from ..workspace import Workspace
from .count_points import Labels, Tracer
from .fault_point_campaign import LEASE_S
from .network_campaign import NetworkCampaign, behind_proxy, caller_connection_errors

SWEEP_STATEMENTS = (
    "promote",
    "expire",
    "reclaim",
)  # when traced, another path may have swept before
SHORT_SCENARIOS_PER_CHILD = 10  # points of short scenarios per child


@dataclass(frozen=True, slots=True)
class AckLossPoint(FaultPoint):
    statement: str = ""

    def __str__(self) -> str:
        return f"{self.scenario}: the response to commit {self.exchange} is lost ({self.statement})"


class AckLoss(NetworkCampaign):
    name = "ackloss"
    columns = ("lost", "survived")
    goal = "lost"
    repeats = 8  # most scenarios commit once or twice, and a workspace costs more than that

    def tracer(self) -> Tracer:
        return partial(count_commits, self.upstream)

    def points(self, scenario: str, exchanges: Sequence[str]) -> Sequence[FaultPoint]:
        if not exchanges and scenario in SWEEP_STATEMENTS:
            exchanges = ["its own"]
        return [
            AckLossPoint(scenario, at, True, statement) for at, statement in enumerate(exchanges, 1)
        ]

    def child_batches(self, batch: list[FaultPoint]) -> Iterator[list[FaultPoint]]:
        """No process dies here, so one child runs several short scenarios."""
        quick = [point for point in batch if not SCENARIOS[point.scenario].max_points]
        yield from ([point] for point in batch if SCENARIOS[point.scenario].max_points)
        for start in range(0, len(quick), SHORT_SCENARIOS_PER_CHILD):
            yield quick[start : start + SHORT_SCENARIOS_PER_CHILD]

    def start_walk(self, workspace: Workspace, labels: Labels) -> None:
        result_file = workspace.folder / f"{next(iter(labels))}.lost"
        body = partial(walk, self.upstream, self.work, labels, result_file)
        self.start_child(body, partial(self._walk_ended, labels, result_file))

    def _walk_ended(self, labels: Labels, result_file: FilePath, exit: ChildExit) -> None:
        self.running -= 1
        lines = result_file.read_text().splitlines() if result_file.exists() else []
        lost = dict(map(json.loads, lines))
        for label, point in labels.items():
            if lost.get(label):
                self.results.counts_of(point.scenario).add("lost")
            elif label in lost:
                self.survived(point)
            else:  # failed before the remaining scenarios
                self.record_failure(str(point), point, exit)
                self.points_started -= len(labels) - len(lost) - 1
                break


def count_commits(upstream: Upstream, work: Workload, label: str, scenario: str, lease: float,
          statements: FilePath) -> None:  # fmt: skip
    """In a child: run to the end, and report the commits."""
    trap, commits = Interceptor(), CommitInspector()
    commits.arm(lambda: trap.armed)
    with behind_proxy(work, upstream, commits):
        run_scenario(SCENARIOS[scenario], ScenarioContext(work, label, lease, trap))
    statements.write_text(json.dumps(commits.commits))


def walk(upstream: Upstream, work: Workload, labels: Labels, result_file: FilePath) -> None:
    """In a child: run scenarios, and lose a response in each; report which were lost."""
    commits = CommitInspector()
    with behind_proxy(work, upstream, commits), result_file.open("a", buffering=1) as lines:
        for label, point in labels.items():
            trap, scenario = Interceptor(), SCENARIOS[point.scenario]
            commits.arm(partial(getattr, trap, "armed"), point.exchange)
            with suppress(
                *(caller_connection_errors() if scenario.uses_caller_transaction else ())
            ):
                run_scenario(scenario, ScenarioContext(work, label, LEASE_S, trap))
            lines.write(json.dumps([label, commits.lost]) + "\n")
