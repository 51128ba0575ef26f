"""Judge: after the faults, retry interrupted scenarios, run a worker until all jobs are settled,
and let the checker decide from the evidence."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath

from ...client.client import Outlast
from ...model.lifecycle import FINAL
from ...ops.cancel_flow import unfinished_cancels
from ..faults.points import FaultPoint
from ..scenario_context import ScenarioContext
from ..scenarios import SCENARIOS
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from .checker import Violation, check, leftover_rows, miscounted_waits
from .evidence import Evidence, collect

STALL_LIMIT_S = 30.0  # seconds without progress before jobs count as stalled
WORKER_SETTINGS: CampaignWorkerOptions = {
    "concurrency": 16,
    "lease": 3.0,
    "renew_every": 0.5,
    "reclaim_every": 0.1,
    "poll_max": 0.05,
    "watch_every": 0.02,
}


@dataclass(slots=True)
class Verdict:
    """The checker's findings in one workspace, as sent from a child to its parent."""

    violations: list[Violation] = field(default_factory=list)
    jobs: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # late writes, by queue
    facts: dict[str, int] = field(default_factory=dict)  # other counts

    def write(self, file: FilePath) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: FilePath) -> Verdict:
        data = json.loads(file.read_text())
        data["violations"] = [Violation(**one) for one in data["violations"]]
        return cls(**data)


def recover(workload: Workload, points: Mapping[str, FaultPoint], lease: float) -> Verdict:
    """Recover and judge a workspace; `points` by their queue."""
    found = collect(workload.ol.store, [])  # before the audit repairs anything
    complaints = [*leftover_rows(found), *miscounted_waits(found)]
    complaints += retry_scenarios(workload, points, lease)
    asyncio.run(settle(workload.ol))
    return judge(workload, complaints)


def retry_scenarios(
    workload: Workload, points: Mapping[str, FaultPoint], lease: float
) -> Iterator[Violation]:
    for label, point in points.items():
        if retry := SCENARIOS[point.scenario].retry:
            for problem in retry(ScenarioContext(workload, label, lease)):
                yield Violation("I2", label, "stalled-net", problem, label)


async def settle(ol: Outlast) -> None:
    """Run a worker until no work is left. The checker reports jobs that stall."""
    seen, until = {"": 0}, 0.0
    try:
        async with ol.worker(**WORKER_SETTINGS):
            while unfinished(counts := await ol.acounts()) or await _cancelling(ol):
                if counts != seen:
                    seen, until = counts, time.monotonic() + STALL_LIMIT_S
                elif time.monotonic() > until:
                    break
                await asyncio.sleep(0.05)
    finally:
        await ol.store.aclose()


async def _cancelling(ol: Outlast) -> bool:
    """Whether the cancellation of a flow is unfinished."""
    return bool(await ol.store.arun(unfinished_cancels))


def unfinished(counts: Mapping[str, int]) -> int:
    return sum(number for state, number in counts.items() if state not in FINAL)


def judge(workload: Workload, complaints: Iterable[Violation] = ()) -> Verdict:
    workspace = workload.workspace
    evidence = collect(workload.ol.store, workload.ledger.read(), workspace.business_rows())
    workload.ol.close()
    return Verdict([*complaints, *check(evidence)], len(evidence.rows), late_answers(evidence))


def late_answers(evidence: Evidence) -> dict[str, int]:
    """The number of responses to owners that their claim is lost, by queue."""
    refused: Counter[str] = Counter()
    for entry in evidence.ledger:
        is_refusal = entry.kind == "told" and not entry.data[1]
        if (
            is_refusal or (entry.kind == "kept" and not entry.data)
        ) and entry.subject in evidence.rows:
            refused[evidence.rows[entry.subject].queue] += 1
    return dict(refused)
