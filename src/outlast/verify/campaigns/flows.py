"""`outlast verify flows`: random graphs of jobs, while workers are killed and flows cancelled.

enqueue   enqueuers add graphs of every shape, and cancel some of them, or jobs in them
work      worker processes run them; one of them is killed every one to three seconds
settle    the remaining jobs end, all processes stop, and every follower is checked
"""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from typing import ClassVar

from ...model.errors import InvalidOption
from ..checks.judge import STALL_LIMIT_S
from ..graph_load import run_graph_load, wait_until_idle
from ..ledger import LedgerEntry
from ..load import Gate
from ..scenarios import Scenario
from ..worker_settings import CampaignWorkerOptions
from .long_campaign import LongCampaign, run_worker

KILL_RANGE_S = (1.0, 3.0)  # seconds between kills
LOADERS = 1
WORKERS = 4
WORKER_SETTINGS: CampaignWorkerOptions = {
    "lease": 2.0,
    "renew_every": 0.5,
    "poll_max": 0.2,
    "grace": 5.0,
    "concurrency": 32,
}
SIZE_BANDS = ((1, "1"), (9, "2-9"), (99, "10-99"), (999, "100-999"), (10**9, "1000"))


class FlowCampaign(LongCampaign):
    name = "flows"
    columns = ("flows", "fan_ins", "kills", "cancels")
    goal = "fan_ins"
    settings: ClassVar[dict[str, object]] = {"idle_timeout": 5.0}

    def drive(self) -> None:
        self.rng = random.Random(self.seed)
        self.gate = Gate()
        self.sizes: Counter[str] = Counter()
        self.workers = self.process_group("worker", partial(run_worker, self.work, WORKER_SETTINGS))
        self.loaders = self.process_group(
            "enqueuer", partial(run_graph_load, self.work, self.gate, self.seed)
        )
        self._kill_at = time.monotonic() + self.rng.uniform(*KILL_RANGE_S)
        while not self.is_over():
            self.loaders.start_missing(LOADERS)
            self._poll_once()
        self._drain()
        self.results.facts["sizes"] = {name: self.sizes[name] for _, name in SIZE_BANDS}

    def _poll_once(self) -> None:
        """Read requests from the ledger, and keep killing workers."""
        self.poll()
        self.workers.start_missing(self.options.at_once or WORKERS)
        for entry in self.tail.read():
            self._count(entry)
        if time.monotonic() >= self._kill_at:
            self.workers.kill(self.rng.choice(sorted(self.workers.running)))
            self.results.counts_of("workers").add("kills")
            self._kill_at = time.monotonic() + self.rng.uniform(*KILL_RANGE_S)

    def _count(self, entry: LedgerEntry) -> None:
        if entry.kind == "flow":
            row = self.results.counts_of(entry.data["shape"])
            row.add("flows")
            row.add("fan_ins", len(entry.data["fan_ins"]))
            self.points_started += len(entry.data["fan_ins"])
            for size in entry.data["fan_ins"]:
                self.sizes[next(name for most, name in SIZE_BANDS if size <= most)] += 1
        elif entry.kind in ("stopped", "unwanted"):
            what = "cancelled flows" if entry.kind == "stopped" else "cancelled jobs"
            self.results.counts_of(what).add("cancels")

    def _drain(self) -> None:
        """Stop enqueueing; the remaining jobs run, and workers die until they have ended."""
        self.gate.set(Gate.SHUT)
        self.loaders.expect_exit()
        self.wait_for_exit(self.loaders)
        ends: list[object] = []
        self.children.start(partial(wait_until_idle, self.work, STALL_LIMIT_S), ends.append)
        while not ends:
            self._poll_once()
        seconds = time.monotonic() - self.results.began
        self.results.facts["fan_ins_a_minute"] = round(60 * self.results.total("fan_ins") / seconds)
        for pid in list(self.workers.running):
            self.workers.terminate(pid)
        self.wait_for_exit(self.workers)

    def _selected_scenarios(self) -> list[Scenario]:
        if self.options.paths:
            raise InvalidOption(option="path", reason="does not apply to this campaign")
        return []
