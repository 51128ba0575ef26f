"""A store whose clock is ahead of the database's: time travel for tests.

Every statement takes the time from the database, by `ol.now()` and its relatives. Here a constant
is added to that expression, so leases, schedules, retries and expiries all see the same later time,
on both databases, and no machine's clock is changed.
"""

from __future__ import annotations

from dataclasses import replace

from .base import Store
from .dialects import POSTGRES, SQLITE_NOW
from .statements import Queries, Query

_POSTGRES_CLOCKS = ("statement_timestamp()", "clock_timestamp()")


class MovedQueries(Queries):
    """Statements by a clock that is `ahead` seconds ahead."""

    def __init__(self, dialect: str, schema: str) -> None:
        super().__init__(dialect, schema)
        self.ahead = 0.0

    def advance(self, seconds: float) -> None:
        self.ahead += seconds
        self.clear()

    def __missing__(self, name: str) -> Query:
        query = super().__missing__(name)
        if self.ahead and query.sql:
            self[name] = query = replace(query, sql=self._moved(query.sql))
        return query

    def _moved(self, sql: str) -> str:
        """The statement with a shifted clock. The number is ours: no caller's text becomes SQL."""
        ahead = f"{self.ahead:.6f}"
        if self._dialect != POSTGRES:
            return sql.replace(SQLITE_NOW, f"({SQLITE_NOW} + {ahead})")
        for clock in _POSTGRES_CLOCKS:
            sql = sql.replace(clock, f"({clock} + make_interval(secs => {ahead}))")
        return sql


def movable_clock(store: Store) -> MovedQueries:
    """The clock of a store, which its clones share from now on."""
    if not isinstance(store.queries, MovedQueries):
        store.queries = MovedQueries(store.address.dialect, store.address.schema)
    return store.queries
