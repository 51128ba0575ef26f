"""`outlast verify soak`: under load, a random fault every one to three seconds.

enqueue   enqueuers add short jobs of all kinds, alone, in bulk, in transactions
work      worker processes, some of them under a supervisor, run them
fault     a fault of a random kind, until the time is up
settle    frozen processes continue, the remaining jobs end, all processes stop, jobs are checked
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from ..checks.judge import STALL_LIMIT_S
from ..faults.connections import ConnectionCutter, kill_quietly, name_connections
from ..results import CampaignResults
from ..supervised import run_supervisor, workers_of
from ..worker_settings import CampaignWorkerOptions
from .campaign import CampaignOptions
from .load_campaign import LoadCampaign

FAULT_RANGE_S = (1.0, 3.0)  # seconds between faults
LEASE_S = 2.0  # seconds: a frozen worker soon loses its jobs
FREEZE_LEASES = (1.2, 2.0)  # duration in leases
WORKER_SETTINGS: CampaignWorkerOptions = {
    "lease": LEASE_S,
    "renew_every": 0.5,
    "poll_max": 0.2,
    "grace": 5.0,
}


class Soak(LoadCampaign):
    name = "soak"
    columns = ("faults", "enqueued")
    goal = "faults"
    settings: ClassVar[dict[str, object]] = {"idle_timeout": LEASE_S}
    default_workers = 4
    worker_settings = WORKER_SETTINGS
    jobs_per_second = 260.0  # 200,000 jobs in ten minutes, with follow-ups

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        super().__init__(options, on_progress)
        name_connections(self.workspaces)

    def drive(self) -> None:
        self.start_load()
        self.supervisors = self.process_group(
            "supervisor", partial(run_supervisor, self.work, WORKER_SETTINGS)
        )
        self._thaws: list[tuple[float, int]] = []
        try:
            self._inject_faults()
            self._thaw(all_of_them=True)
            self.drain(self.supervisors)
        finally:
            self._kill_supervised_workers()

    def _inject_faults(self) -> None:
        faults = self._faults()
        strike_at = time.monotonic() + self.rng.uniform(*FAULT_RANGE_S)
        while not self.is_over():
            self._poll_once()
            if time.monotonic() < strike_at:
                continue
            kind = self.rng.choice(sorted(faults))
            if faults[kind]():
                self.results.counts_of(kind).add("faults")
                strike_at = time.monotonic() + self.rng.uniform(*FAULT_RANGE_S)

    def _poll_once(self) -> None:
        self.read_ledger()
        self._thaw()
        self.refill()
        self.supervisors.start_missing(1)

    def _thaw(self, *, all_of_them: bool = False) -> None:
        for at, pid in [*self._thaws]:
            if all_of_them or time.monotonic() >= at:
                self._thaws.remove((at, pid))
                self.workers.thaw(pid)

    # Faults: each returns whether it could be injected

    def _faults(self) -> dict[str, Callable[[], bool]]:
        faults = {
            "kill a worker": self._kill,
            "freeze a worker": self._freeze,
            "stop a worker": self._stop,
            "kill an enqueuer": self._kill_loader,
            "kill a supervisor": self._kill_supervisor,
        }
        if workers_of(0) is not None:  # only where child processes can be listed
            faults["kill a supervised worker"] = self._kill_supervised
        if not self.workspaces.is_sqlite:
            self._cutter = ConnectionCutter(self.workspaces, self.rng)
            faults["cut connections"] = self._cut
        return faults

    def _kill(self) -> bool:
        return self._apply_to(self.workers.running, self.workers.kill)

    def _stop(self) -> bool:
        return self._apply_to(self.workers.awake, self.workers.terminate)

    def _kill_loader(self) -> bool:
        return self._apply_to(self.loaders.running, self.loaders.kill)

    def _kill_supervisor(self) -> bool:
        return self._apply_to(self.supervisors.running, self.supervisors.kill)

    def _freeze(self) -> bool:
        """Freeze a worker for longer than a lease; at least one stays unfrozen."""
        if len(self.workers.awake) < 2:
            return False
        pid = self.rng.choice(sorted(self.workers.awake))
        self.workers.freeze(pid)
        self._thaws.append((time.monotonic() + LEASE_S * self.rng.uniform(*FREEZE_LEASES), pid))
        return True

    def _kill_supervised(self) -> bool:
        found = [
            pid for supervisor in self.supervisors.running for pid in workers_of(supervisor) or ()
        ]
        return self._apply_to(found, kill_quietly)

    def _cut(self) -> bool:
        ends: list[bool] = []
        self.children.start(self._cutter, lambda ended: ends.append(ended.ok))
        return self.wait_for(lambda: bool(ends), STALL_LIMIT_S) and ends[0]

    def _apply_to(self, pids: list[int], fault: Callable[[int], None]) -> bool:
        if not pids:
            return False
        fault(self.rng.choice(sorted(pids)))
        return True

    def _kill_supervised_workers(self) -> None:
        """Kill supervised workers after a failure: they would outlive the campaign for a while."""
        for supervisor in self.supervisors.running:
            for pid in workers_of(supervisor) or ():
                kill_quietly(pid)
