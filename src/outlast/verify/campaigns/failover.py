"""`outlast verify failover`: the primary stops and its standby is promoted, repeatedly.

load      enqueuers and workers, all the time, with one URL that names both servers
fail      the primary is stopped immediately, and the standby promoted
rebuild   the old primary comes back as the standby of the new one
settle    after the last failover all jobs end, and are checked

The standby is synchronous: it has every commit before it is acknowledged, so every acknowledged job
must exist and must have run. `split_brain` has the asynchronous campaign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..faults.standby import ReplicaPair
from ..results import CampaignResults
from .campaign import CampaignOptions
from .postgres_crash_campaign import PostgresCrashCampaign

WORK_RANGE_S = (0.5, 2.0)  # between a rebuilt standby and the next failure


class Failover(PostgresCrashCampaign):
    name = "failover"
    columns: ClassVar[tuple[str, ...]] = ("failovers", "enqueued")
    goal = "failovers"
    server_label = "primary"
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
        super().drive()

    def crash_and_resume(self) -> None:
        self.keep_working(*WORK_RANGE_S)
        self.pair.primary.crash(self.read_ledger)
        self.measure_resumption(self.pair.promote(), "the standby was promoted")
        self.pair.rebuild(self.children, self.read_ledger)
        self.attach_standby()

    def attach_standby(self) -> None:
        """The standby has every commit before it is acknowledged."""
        self.pair.synchronise(self.poll)
