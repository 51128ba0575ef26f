"""`outlast verify netsplit`: the network falls silent, slows down or breaks in mid-call.

    silence   nothing arrives in either direction from then on, without an error
    pause     the same for a moment; then everything held back arrives
    slow      everything takes longer from then on
    reset     the connection breaks, and data in flight is lost
    torn      half of a chunk arrives, then the connection breaks
    outage    every connection breaks, and for a moment no new one is accepted

Each scenario runs once to count the chunks on its connection; then, for each chunk, a child runs it
and meets one of the faults there. Every call must return in time, with a result or an error of
Outlast; and afterwards everything recovers, as after a crash.
"""

from __future__ import annotations

import faulthandler
import json
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath

from ...model.errors import OutlastError
from ..call_timer import CallTimer, TimedCall, overdue_calls, timed_calls
from ..checks.checker import Violation
from ..checks.judge import Verdict
from ..children import ChildExit
from ..faults.interceptor import Interceptor
from ..faults.points import FaultPoint
from ..faults.proxied_connection import Upstream
from ..faults.proxy import Proxy
from ..ledger import Ledger
from ..results import CampaignResults
from ..scenario_context import ScenarioContext
from ..scenarios import SCENARIOS, run_scenario
from ..workload import Workload
from ..workspace import Workspace
from .campaign import CampaignOptions
from .count_points import Labels, Tracer
from .fault_point_campaign import LEASE_S, OneFaultPerChild
from .network_campaign import (
    SURVIVED_EXIT_CODE,
    NetworkCampaign,
    behind_proxy,
    caller_connection_errors,
    exit_with,
)

FAULT_KINDS = ("silence", "pause", "slow", "reset", "torn", "outage")
MAX_CALL_S = 5.0  # seconds per call
# Long enough for a connection (libpq waits at least 2 s) and a response on a busy machine.
DEADLINE_S, CONNECT_TIMEOUT_S = 1.5, 2.0
MAX_WORK_S = 4.0  # seconds that a worker runs
HANG_TIMEOUT_S = 25.0  # seconds after which a scenario counts as hung and prints its stack
POINTS_PER_ROUND = 24  # per scenario


@dataclass(frozen=True, slots=True)
class SplitPoint(FaultPoint):
    kind: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.scenario}: {self.kind} ({self.seconds:.2f} s) at chunk {self.exchange}"


class NetSplit(OneFaultPerChild, NetworkCampaign):
    name = "netsplit"
    columns = ("splits", *FAULT_KINDS, "survived")
    goal = "splits"
    default_children = 12  # most of them are waiting

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        super().__init__(options, on_progress)
        self.slowest = TimedCall("", "none", 0.0, "")
        self.calls = 0

    def tracer(self) -> Tracer:
        return partial(count_chunks, self.upstream)

    def points(self, scenario: str, exchanges: Sequence[str]) -> Sequence[FaultPoint]:
        """A sample of all points and faults. A caller's own connection has no deadline, so it gets
        no silence: the call would never return."""
        rng = random.Random(f"{self.seed} {scenario}")
        kinds = [
            kind
            for kind in FAULT_KINDS
            if kind != "silence" or not SCENARIOS[scenario].uses_caller_transaction
        ]
        every = [(at, kind) for at in range(1, len(exchanges) + 1) for kind in kinds]
        chosen = rng.sample(every, min(len(every), POINTS_PER_ROUND))
        return [
            SplitPoint(scenario, at, False, kind, rng.uniform(*FAULT_RANGES_S[kind]))
            for at, kind in chosen
        ]

    def walk(self, label: str, point: FaultPoint) -> Callable[[], None]:
        return partial(walk, self.upstream, self.work, label, point)

    def record_exit(self, point: FaultPoint, exit: ChildExit) -> None:
        row = self.results.counts_of(point.scenario)
        if exit.ok and isinstance(point, SplitPoint):
            row.add("splits")
            row.add(point.kind)
        elif exit.code == SURVIVED_EXIT_CODE:
            self.survived(point)
        else:
            self.record_failure(str(point), point, exit)

    def examine(self, workspace: Workspace) -> Iterable[Violation]:
        made = timed_calls(Ledger(workspace.ledger_file).read())
        slowest = max(made, key=lambda call: call.seconds, default=self.slowest)
        summary = [len(made), slowest.label, slowest.name, slowest.seconds, slowest.outcome]
        _calls(workspace).write_text(json.dumps(summary))
        return list(overdue_calls(made, MAX_CALL_S))

    def record_verdict(
        self, workspace: Workspace, labels: Labels, exit: ChildExit
    ) -> Verdict | None:
        verdict = super().record_verdict(workspace, labels, exit)
        if verdict is not None:
            number, *slowest_call = json.loads(_calls(workspace).read_text())
            self.calls += number
            if (slowest := TimedCall(*slowest_call)).seconds > self.slowest.seconds:
                self.slowest = slowest
        self.results.facts = {
            "calls": self.calls,
            "slowest_call": f"{self.slowest.name}, {self.slowest.seconds:.2f} s"
            f" ({self.slowest.outcome})",
        }
        return verdict


# Duration of a fault by kind (for a slow connection: the additional latency in each direction).
FAULT_RANGES_S = {
    "silence": (0.0, 0.0),
    "pause": (0.2, 1.4),
    "slow": (0.02, 0.2),
    "reset": (0.0, 0.0),
    "torn": (0.0, 0.0),
    "outage": (0.1, 1.0),
}


class ChunkInspector:
    """An inspector for the proxy: counts chunks while armed, and injects the fault at one of
    them."""

    def __init__(self, armed: Callable[[], bool], split: SplitPoint | None = None) -> None:
        self.armed = armed
        self.split = split
        self.chunks: list[str] = []
        self.has_struck = False
        self.proxy: Proxy | None = None
        self._counting = threading.Lock()

    def __call__(self, line: int, data: bytes, answer: bool) -> bytes:
        if not self.armed():
            return data
        with self._counting:
            self.chunks.append("answer" if answer else "request")
            due = self.split is not None and len(self.chunks) == self.split.exchange
            self.has_struck = self.has_struck or due
        return self._strike(data) if due else data

    def _strike(self, data: bytes) -> bytes:
        split, proxy = self.split, self.proxy
        if split is None or proxy is None:
            return data
        match split.kind:
            case "silence":
                proxy.freeze()
            case "pause":
                proxy.freeze()
                _later(split.seconds, proxy.thaw)
            case "slow":
                proxy.delay(split.seconds)
            case "outage":
                proxy.refuse()
                _later(split.seconds, proxy.accept)
                return b""
            case "reset":
                return b""
            case "torn":
                return data[: len(data) // 2]
        return data


def _later(seconds: float, then: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, then)
    timer.daemon = True
    timer.start()


def count_chunks(upstream: Upstream, work: Workload, label: str, scenario: str, lease: float,
          chunks_file: FilePath) -> None:  # fmt: skip
    """In a child: run to the end, and report the chunks that passed the proxy."""
    interceptor = Interceptor()
    chunks = ChunkInspector(lambda: interceptor.armed)
    with behind_proxy(work, upstream, chunks):
        run_scenario(SCENARIOS[scenario], ScenarioContext(work, label, lease, interceptor))
    chunks_file.write_text(json.dumps(chunks.chunks))


def walk(upstream: Upstream, work: Workload, label: str, point: FaultPoint) -> None:
    """In a child: run a scenario whose network breaks; an Outlast error is allowed if it is raised
    in time."""
    faulthandler.dump_traceback_later(HANG_TIMEOUT_S, exit=True, file=2)
    interceptor, scenario = Interceptor(), SCENARIOS[point.scenario]
    split = point if isinstance(point, SplitPoint) else None
    chunks = ChunkInspector(lambda: interceptor.armed, split)
    caller_errors = caller_connection_errors() if scenario.uses_caller_transaction else ()
    work.ol.store.settings = replace(
        work.ol.store.settings, deadline=DEADLINE_S, connect_timeout=CONNECT_TIMEOUT_S
    )
    with (
        behind_proxy(work, upstream, chunks) as chunks.proxy,
        suppress(OutlastError, *caller_errors),
    ):
        ctx = ScenarioContext(work, label, LEASE_S, interceptor)
        ctx.max_work_s = MAX_WORK_S
        CallTimer(
            work.ledger,
            label,
            lambda: chunks.has_struck,
            (*caller_errors, *scenario.expected_errors),
        ).install()
        run_scenario(scenario, ctx)
    exit_with(chunks.has_struck)


def _calls(workspace: Workspace) -> FilePath:
    return workspace.folder.with_suffix(".calls")
