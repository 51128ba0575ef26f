"""`outlast verify crash`: kill a process before and after every statement of every scenario.

Each child arms its interceptor, acts, and dies at its point by SIGKILL.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from ..children import ChildExit
from ..faults.interceptor import Interceptor
from ..faults.points import FaultPoint, points_of
from ..scenario_context import ScenarioContext
from ..scenarios import SCENARIOS, run_scenario
from ..workload import Workload
from .count_points import Tracer, trace
from .fault_point_campaign import LEASE_S, OneFaultPerChild


class Crash(OneFaultPerChild):
    name = "crash"
    columns = ("kills", "survived")
    goal = "kills"
    # The first process that opens the file after a kill reads the whole log.
    settings: ClassVar[dict[str, object]] = {"checkpoint_pages": 200}

    def tracer(self) -> Tracer:
        return trace

    def points(self, scenario: str, exchanges: Sequence[str]) -> Sequence[FaultPoint]:
        return points_of(scenario, exchanges)

    def walk(self, label: str, point: FaultPoint) -> Callable[[], None]:
        return partial(walk, self.work, label, point)

    def record_exit(self, point: FaultPoint, exit: ChildExit) -> None:
        if exit.signal == signal.SIGKILL:
            self.results.counts_of(point.scenario).add("kills")
        elif exit.ok:
            self.survived(point)
        else:
            self.record_failure(str(point), point, exit)


def walk(work: Workload, label: str, point: FaultPoint) -> None:
    """In a child: run a scenario until the interceptor kills the process."""
    interceptor = Interceptor(point.exchange, point.after)
    interceptor.install()
    run_scenario(SCENARIOS[point.scenario], ScenarioContext(work, label, LEASE_S, interceptor))
