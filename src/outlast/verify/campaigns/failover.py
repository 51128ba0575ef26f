"""`outlast verify failover`: the primary dies, its standby takes over, again and again.

load      enqueuers and workers, all the time, by one address that names both servers
fail      the primary is stopped at once, and the standby promoted
rebuild   the old primary comes back as the standby of the new one
settle    after the last one all is worked off, and the judge looks

Synchronous, the standby has every commit before it is acknowledged: whatever was acknowledged is
there, and was done. `split_brain` has the asynchronous campaign.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from ..faults.standby import ReplicaPair
from ..results import CampaignResults
from .campaign import CampaignOptions
from .load_campaign import LoadCampaign

WORK_RANGE_S = (0.5, 2.0)  # seconds of work between a rebuilt standby and the next failure
RESUME_WITHIN_S = 30.0  # seconds in which a job must have begun


class Failover(LoadCampaign):
    name = "failover"
    columns: ClassVar[tuple[str, ...]] = ("failovers", "enqueued")
    goal = "failovers"
    default_workers = 3
    jobs_per_second = 150.0

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        self.pair = ReplicaPair()
        super().__init__(options, on_progress, database=self.pair)

    def drive(self) -> None:
        self.attach_standby()
        self.start_load()
        self.first_begun(time.monotonic())
        while not self.is_over():
            self.fail_over()
            self.points_started += 1
            self.results.counts_of("primary").add("failovers")
        self.drain()

    def fail_over(self) -> None:
        self.keep_working(*WORK_RANGE_S)
        self.pair.primary.crash(self.read_ledger)
        self.measure_takeover(self.pair.promote())
        self.pair.rebuild(self.children, self.read_ledger)
        self.attach_standby()

    def attach_standby(self) -> None:
        """The standby has every commit before it is acknowledged."""
        self.pair.synchronise(self.poll)

    def measure_takeover(self, promoted_at: float) -> None:
        """Measure how soon work goes on at the new primary."""
        if begun_at := self.first_begun(promoted_at):
            self.results.spans.setdefault("first_claim", []).append(begun_at - promoted_at)
        else:
            message = f"no job began within {RESUME_WITHIN_S:g} s after the standby was promoted"
            self.results.add_violation("primary", "primary", f"I2 stalled-net: {message}")

    def keep_working(self, least: float, most: float) -> None:
        until = time.monotonic() + self.rng.uniform(least, most)
        while time.monotonic() < until:
            self.read_ledger()

    def first_begun(self, moment: float) -> float | None:
        """When the first job began after that moment; None: not in time."""
        until = time.monotonic() + RESUME_WITHIN_S
        while time.monotonic() < until:
            begins = [e.at for e in self.read_ledger() if e.kind == "began" and e.at > moment]
            if begins:
                return min(begins)
        return None
