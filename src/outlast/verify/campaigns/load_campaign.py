"""Base of campaigns under load: enqueuers add short jobs at a steady rate, workers run them."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from ..checks.judge import STALL_LIMIT_S
from ..ledger import LedgerEntry
from ..load import Backlog, Gate, run_load
from ..process_group import ProcessGroup
from ..worker_settings import CampaignWorkerOptions
from .long_campaign import LongCampaign, run_worker

LOADERS = 2


class LoadCampaign(LongCampaign):
    default_workers: ClassVar[int]
    worker_settings: ClassVar[CampaignWorkerOptions] = {}
    drain_within_s: ClassVar[float] = (
        STALL_LIMIT_S  # seconds to start all acknowledged jobs at the end
    )
    jobs_per_second: ClassVar[float]  # of all enqueuers together

    def start_load(self) -> None:
        self.rng = random.Random(self.seed)
        self.backlog = Backlog(Gate())
        self.workers = self.process_group("worker", self.worker_body())
        self.loaders = self.process_group("enqueuer", self.loader_body())
        self.refill()

    def worker_body(self) -> Callable[[int], object]:
        return partial(run_worker, self.work, self.worker_settings)

    def loader_body(self) -> Callable[[int], object]:
        rate = self.jobs_per_second / LOADERS
        return partial(run_load, self.work, self.backlog.gate, self.seed, rate)

    def refill(self) -> None:
        """Replace dead processes until the end."""
        if self.backlog.gate.state != Gate.SHUT:
            self.workers.start_missing(self.options.at_once or self.default_workers)
            self.loaders.start_missing(LOADERS)

    def read_ledger(self) -> list[LedgerEntry]:
        """Process new entries of the ledger, and throttle the enqueuers by them."""
        self.poll()
        entries = list(self.tail.read())
        promised = self.backlog.record(entries)
        self.results.counts_of("load").add("enqueued", promised)
        return entries

    def drain(self, *others: ProcessGroup) -> None:
        """Stop enqueueing, let the remaining jobs end, then stop all processes."""
        self.backlog.gate.set(Gate.SHUT)
        self.loaders.expect_exit()
        self.wait_for_exit(self.loaders)
        self.wait_for(self._is_drained, self.drain_within_s)
        groups = (self.workers, *others)
        for group in groups:
            for pid in list(group.running):
                group.terminate(pid)
        self.wait_for_exit(*groups)

    def _is_drained(self) -> bool:
        self.read_ledger()
        return not self.backlog.waiting
