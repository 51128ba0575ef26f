"""Campaigns that crash their own PostgreSQL under load, and measure how soon jobs run again."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from ..faults.own_postgres import OwnDatabase
from ..results import CampaignResults
from .campaign import CampaignOptions
from .load_campaign import LoadCampaign

RESUME_WITHIN_S = 30.0  # seconds in which a job must start


class PostgresCrashCampaign(LoadCampaign):
    default_workers = 3
    server_label: ClassVar[str]  # the row in the results

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
        *,
        database: OwnDatabase,
    ) -> None:
        super().__init__(options, on_progress, database=database)

    def drive(self) -> None:
        self.start_load()
        self._first_begun(time.monotonic())
        while not self.is_over():
            self.crash_and_resume()
            self.points_started += 1
            self.results.counts_of(self.server_label).add(self.goal)
        self.drain()

    @abstractmethod
    def crash_and_resume(self) -> None:
        """One cycle: the server fails, and work resumes."""

    def measure_resumption(self, ready_at: float, event: str) -> None:
        """Measure how soon a job starts after the server is ready."""
        if begun_at := self._first_begun(ready_at):
            self.results.spans.setdefault("first_claim", []).append(begun_at - ready_at)
        else:
            message = f"I2 stalled-net: no job began within {RESUME_WITHIN_S:g} s after {event}"
            self.results.add_violation(self.server_label, self.server_label, message)

    def keep_working(self, least_s: float, most_s: float) -> None:
        until = time.monotonic() + self.rng.uniform(least_s, most_s)
        while time.monotonic() < until:
            self.read_ledger()

    def _first_begun(self, moment: float) -> float | None:
        """The start of the first job after that time; None: not in time."""
        until = time.monotonic() + RESUME_WITHIN_S
        while time.monotonic() < until:
            begins = [e.at for e in self.read_ledger() if e.kind == "began" and e.at > moment]
            if begins:
                return min(begins)
        return None
