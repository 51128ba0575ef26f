"""Count the fault points of a scenario: run it once with an interceptor that only counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path as FilePath

from ..children import ChildExit
from ..faults.interceptor import Interceptor
from ..faults.points import FaultPoint, batches
from ..scenario_context import ScenarioContext
from ..scenarios import SCENARIOS, run_scenario
from ..workload import Workload
from ..workspace import Workspace
from .campaign import Campaign

Labels = dict[str, FaultPoint]
Tracer = Callable[[Workload, str, str, float, FilePath], None]


class PointCounter:
    """Runs every scenario once, each in its own workspace; `look` inspects the workspace
    afterwards."""

    def __init__(
        self,
        campaign: Campaign,
        lease: float,
        judge: Callable[[Workspace, Labels], None],
        tracer: Tracer | None = None,
    ) -> None:
        self.campaign = campaign
        self.tracer = tracer or trace
        self.lease = lease
        self.judge = judge
        self.exchanges: dict[str, list[str]] = {}

    def run(self) -> dict[str, list[str]]:
        """The statements of each scenario, exchange by exchange."""
        here = "sqlite" if self.campaign.workspaces.is_sqlite else "postgres"
        scenarios = [
            scenario for scenario in self.campaign.scenarios if scenario.only_store in (None, here)
        ]
        for batch in batches(
            [FaultPoint(scenario.name, 0, False) for scenario in scenarios], len(scenarios)
        ):
            workspace, labels = (
                self.campaign.next_workspace(),
                {f"t{n}": p for n, p in enumerate(batch)},
            )
            for label, point in labels.items():
                self.campaign.results.counts_of(point.scenario)
                file = workspace.folder / f"{point.scenario}.words"
                body = partial(
                    self.tracer, self.campaign.work, label, point.scenario, self.lease, file
                )
                self.campaign.start_child(body, partial(self._counted, point, file))
            while self.campaign.running:
                self.campaign.wait_for_child()
            self.judge(workspace, labels)
        return self.exchanges

    def _counted(self, point: FaultPoint, file: FilePath, exit: ChildExit) -> None:
        self.campaign.running -= 1
        if not exit.ok:
            self.campaign.record_failure(f"{point.scenario}, without a kill", point, exit)
            return
        self.exchanges[point.scenario] = json.loads(file.read_text())
        self.campaign.results.counts_of(point.scenario).points = 2 * len(
            self.exchanges[point.scenario]
        )


def trace(
    work: Workload, label: str, scenario: str, lease: float, exchanges_file: FilePath
) -> None:
    """In a child: run to the end, and report the exchanges with the database."""
    interceptor = Interceptor()
    interceptor.install()
    run_scenario(SCENARIOS[scenario], ScenarioContext(work, label, lease, interceptor))
    exchanges_file.write_text(json.dumps(interceptor.exchanges))
