"""`outlast verify dbcrash`: a PostgreSQL of its own crashes and comes back, again and again.

load      enqueuers and workers, all the time
crash     SIGQUIT to the server, at a random moment; then it is started again
measure   from when it accepts connections until the first job begins
settle    after the last one all is worked off, and the judge looks: whatever was acknowledged
          is there, and was done
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..faults.own_postgres import OwnPostgres
from ..results import CampaignResults
from .campaign import CampaignOptions
from .load_campaign import LoadCampaign

WORK_RANGE_S = (0.5, 2.5)  # seconds of work between a crash and the next
RESUME_WITHIN_S = 30.0  # seconds in which a job must have begun


class DatabaseCrash(LoadCampaign):
    name = "dbcrash"
    columns = ("crashes", "enqueued")
    goal = "crashes"
    default_workers = 3
    jobs_per_second = 200.0

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        self.server = OwnPostgres()
        super().__init__(options, on_progress, database=self.server)

    def drive(self) -> None:
        self.first_claims = self.results.spans.setdefault("first_claim", [])
        self.start_load()
        self._first_begun(time.monotonic())
        while not self.is_over():
            self._cycle()
        self.drain()

    def _cycle(self) -> None:
        self.server.crash(self.read_ledger)
        ready_at = self.server.start(self.children, self.read_ledger)
        self.points_started += 1
        self.results.counts_of("server").add("crashes")
        if begun_at := self._first_begun(ready_at):
            self.first_claims.append(begun_at - ready_at)
        else:
            message = f"no job began within {RESUME_WITHIN_S:g} s after the server was back"
            self.results.add_violation("server", "server", f"I2 stalled-net: {message}")
        pause = time.monotonic() + self.rng.uniform(*WORK_RANGE_S)
        while time.monotonic() < pause:
            self.read_ledger()

    def _first_begun(self, moment: float) -> float | None:
        """When the first job began after that moment; None: not in time."""
        until = time.monotonic() + RESUME_WITHIN_S
        while time.monotonic() < until:
            begins = [e.at for e in self.read_ledger() if e.kind == "began" and e.at > moment]
            if begins:
                return min(begins)
        return None
