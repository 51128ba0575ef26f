"""After the kills: whoever was killed tries again, a worker works until all is settled, and the
judge looks at what is there."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ..client import Outlast
from ..model.lifecycle import FINAL
from ..ops.cancel_flow import unsettled
from .checker import Violation, check, counted, tidy
from .evidence import Evidence, collect
from .paths import PATHS
from .points import Point
from .stage import Stage
from .workload import Workload

LONGEST = 30.0  # seconds in which something must have moved, until all is settled
WORKER: dict[str, Any] = {
    "concurrency": 16,
    "lease": 3.0,
    "renew_every": 0.5,
    "reclaim_every": 0.1,
    "poll_max": 0.05,
    "watch_every": 0.02,
}


@dataclass(slots=True)
class Verdict:
    """What the judge found in one place, as it travels from a child to its parent."""

    violations: list[Violation] = field(default_factory=list)
    jobs: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # writes that came too late, by queue
    facts: dict[str, int] = field(default_factory=dict)  # what else was counted

    def write(self, file: FilePath) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: FilePath) -> Verdict:
        said = json.loads(file.read_text())
        said["violations"] = [Violation(**one) for one in said["violations"]]
        return cls(**said)


def recover(workload: Workload, points: Mapping[str, Point], lease: float) -> Verdict:
    """Points by the queue they had."""
    found = collect(workload.ol.store, [])  # before the audit can clear up
    complaints = [*tidy(found), *counted(found)]
    complaints += try_again(workload, points, lease)
    asyncio.run(settle(workload.ol))
    return judge(workload, complaints)


def try_again(workload: Workload, points: Mapping[str, Point], lease: float) -> Iterator[Violation]:
    for label, point in points.items():
        if retry := PATHS[point.path].retry:
            for told in retry(Stage(workload, label, lease)):
                yield Violation("I2", label, "stalled-net", told, label)


async def settle(ol: Outlast) -> None:
    """Work until nothing is left to do. What has not moved for very long is the judge's to tell."""
    seen, until = {"": 0}, 0.0
    try:
        async with ol.worker(**WORKER):
            while under_way(counts := await ol.acounts()) or await _cancelling(ol):
                if counts != seen:
                    seen, until = counts, time.monotonic() + LONGEST
                elif time.monotonic() > until:
                    break
                await asyncio.sleep(0.05)
    finally:
        await ol.store.aclose()


async def _cancelling(ol: Outlast) -> bool:
    """Whether a flow was cancelled and nobody has seen the end of it."""
    return bool(await ol.store.arun(unsettled))


def under_way(counts: Mapping[str, int]) -> int:
    return sum(number for state, number in counts.items() if state not in FINAL)


def judge(workload: Workload, complaints: Iterable[Violation] = ()) -> Verdict:
    place = workload.place
    evidence = collect(workload.ol.store, workload.ledger.read(), place.business())
    workload.ol.close()
    return Verdict([*complaints, *check(evidence)], len(evidence.rows), late_answers(evidence))


def late_answers(evidence: Evidence) -> dict[str, int]:
    """How often owners were told that they own nothing, by queue."""
    refused: Counter[str] = Counter()
    for entry in evidence.ledger:
        told = entry.what == "told" and not entry.said[1]
        if (told or (entry.what == "kept" and not entry.said)) and entry.about in evidence.rows:
            refused[evidence.rows[entry.about].queue] += 1
    return dict(refused)
