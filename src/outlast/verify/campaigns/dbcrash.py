"""`outlast verify dbcrash`: the campaign's own PostgreSQL server crashes and restarts repeatedly.

load      enqueuers and workers, all the time
crash     SIGQUIT to the server, at a random time; then it is started again
measure   from when it accepts connections until the first job starts
settle    after the last crash all jobs end, and the checker verifies that every acknowledged job
          exists and was run
"""

from __future__ import annotations

from collections.abc import Callable

from ..faults.own_postgres import OwnPostgres
from ..results import CampaignResults
from .campaign import CampaignOptions
from .postgres_crash_campaign import PostgresCrashCampaign

WORK_RANGE_S = (0.5, 2.5)  # between a crash and the next


class DatabaseCrash(PostgresCrashCampaign):
    name = "dbcrash"
    columns = ("crashes", "enqueued")
    goal = "crashes"
    server_label = "server"
    jobs_per_second = 200.0

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
    ) -> None:
        self.server = OwnPostgres()
        super().__init__(options, on_progress, database=self.server)

    def crash_and_resume(self) -> None:
        self.server.crash(self.read_ledger)
        ready_at = self.server.start(self.children, self.read_ledger)
        self.measure_resumption(ready_at, "the server was back")
        self.keep_working(*WORK_RANGE_S)
