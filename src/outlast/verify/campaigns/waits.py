"""`outlast verify waits`: signals race waits and time-outs, while workers and senders are killed.

enqueue   an enqueuer adds jobs that sleep, wait for up to three signals, and for one more that may
          time out
send      senders send early, double and late signals, also in transactions that commit late or not
work      worker processes run the jobs; a worker or a sender is killed every half second
settle    the remaining jobs end; each signal was taken once, in order, and none was lost
"""

from __future__ import annotations

import json
import random
import time
from functools import partial
from pathlib import Path

from ...client.verb_arguments import MAX_ROWS
from ...model.errors import InvalidOption
from ..checks.judge import STALL_LIMIT_S
from ..checks.signals import all_signals, count_signals, judge_signals
from ..graph_load import wait_until_idle
from ..load import Gate
from ..scenarios import Scenario
from ..wait_load import run_sender, run_wait_load
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from .long_campaign import LongCampaign, run_worker

KILL_INTERVAL_S = 0.5
SENDER_SHARE = 0.3  # kills that hit a sender
WORKERS, SENDERS = 3, 2
WORKER_SETTINGS: CampaignWorkerOptions = {
    "poll_max": 0.2,
    "reclaim_every": 0.2,
    "grace": 5.0,
    "concurrency": 8,
}


class WaitCampaign(LongCampaign):
    name = "waits"
    columns = ("runs", "kills", "sent")
    goal = "runs"

    def drive(self) -> None:
        self.rng, self.gate = random.Random(self.seed), Gate()
        load = partial(run_wait_load, self.work, self.gate, self.seed)
        send = partial(run_sender, self.work, self.seed)
        self.workers = self.process_group("worker", partial(run_worker, self.work, WORKER_SETTINGS))
        self.loaders = self.process_group("enqueuer", load)
        self.senders = self.process_group("sender", send)
        self.loaders.start_missing(1)
        self._kill_at = time.monotonic() + KILL_INTERVAL_S
        while not self.is_over():
            self._poll_once()
        self._drain()

    def _poll_once(self) -> None:
        """Count the entries of the ledger, and keep killing."""
        self.poll()
        self.workers.start_missing(self.options.at_once or WORKERS)
        self.senders.start_missing(SENDERS)
        for entry in self.tail.read():
            if entry.kind == "passed":
                self.results.counts_of("jobs").add("runs")
                self.points_started += 1
                self.workers.saw_working(entry.pid)
            elif entry.kind == "sent":
                self.results.counts_of("signals").add("sent", entry.data)
                self.senders.saw_working(entry.pid)
        if time.monotonic() >= self._kill_at:
            self._kill_one()
            self._kill_at = time.monotonic() + KILL_INTERVAL_S

    def _kill_one(self) -> None:
        group, name = self.workers, "workers"
        if self.rng.random() < SENDER_SHARE:
            group, name = self.senders, "senders"
        if pid := group.victim(self.rng):
            group.kill(pid)
            self.results.counts_of(name).add("kills")

    def _drain(self) -> None:
        """Stop enqueueing; kill until all jobs have ended."""
        self.loaders.expect_exit()
        self.gate.set(Gate.SHUT)
        self.wait_for_exit(self.loaders)
        ends: list[object] = []
        self.children.start(partial(wait_until_idle, self.work, STALL_LIMIT_S), ends.append)
        while not ends:
            self._poll_once()
        for group in (self.workers, self.senders):
            for pid in list(group.running):
                group.kill(pid)
            self.wait_for_exit(group)
        found = self.workspace.folder / "signals.json"
        self.children.run_all(partial(write_findings, self.work, found))
        judged = json.loads(found.read_text())
        self.results.facts |= judged["facts"]
        for wrong in judged["wrong"]:
            self.results.add_violation(self.name, self.name, wrong)

    def _selected_scenarios(self) -> list[Scenario]:
        if self.options.paths:
            raise InvalidOption(option="path", reason="does not apply to this campaign")
        return []


def write_findings(work: Workload, file: Path) -> None:
    """In a child: compare signals, waits and results."""
    jobs = work.ol.jobs(task=work.waiting.waits.name, limit=MAX_ROWS)
    signals = work.ol.store.run(all_signals)
    work.ol.close()
    judged = {"facts": count_signals(jobs, signals), "wrong": judge_signals(jobs, signals)}
    file.write_text(json.dumps(judged))
