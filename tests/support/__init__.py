"""The test harness: real servers, real processes, real faults.

Read in this order: databases (what a test runs on) → postgres, pgbouncer (the servers) →
processes, waiting (what a test starts, and how it waits) → clock, proxy (what goes wrong).
"""

from tests.support.clock import wrong_clock
from tests.support.databases import Database
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres import Postgres
from tests.support.processes import Process, Processes
from tests.support.proxy import Proxy
from tests.support.requirements import skip_or_fail
from tests.support.waiting import aeventually, eventually, rounds

__all__ = [
    "Database",
    "PgBouncer",
    "Postgres",
    "Process",
    "Processes",
    "Proxy",
    "aeventually",
    "eventually",
    "rounds",
    "skip_or_fail",
    "wrong_clock",
]
