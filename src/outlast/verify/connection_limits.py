"""Connection limit of a campaign: PostgreSQL allows 100 in all by default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from .faults.points import FaultPoint
from .workspace import WorkspaceFactory

MAX_SHARE = 0.25  # of the free connections at the start: several campaigns may run at once
WORKER_CONNECTIONS = 6  # of a whole worker
SCENARIO_CONNECTIONS = 2  # of any other scenario: its own, and one of a caller or a handler

FREE_CONNECTIONS_SQL = """
SELECT current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0)
    - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""


def allowed_connections(workspaces: WorkspaceFactory) -> float:
    """Connections that a campaign may hold open at once; SQLite has no limit."""
    if workspaces.is_sqlite:
        return float("inf")
    import psycopg

    with closing(psycopg.connect(workspaces.address.url)) as connection:
        row = connection.execute(FREE_CONNECTIONS_SQL).fetchone()
        return max(WORKER_CONNECTIONS, MAX_SHARE * row[0]) if row else WORKER_CONNECTIONS


def batches_within(
    points: Sequence[FaultPoint], allowed: float, max_points: int
) -> Iterator[list[FaultPoint]]:
    """The points in batches of limited size, whose processes have enough connections."""
    batch: list[FaultPoint] = []
    taken = 0
    for point in points:
        needed = connections_of(point)
        if batch and (len(batch) == max_points or taken + needed > allowed):
            yield batch
            batch, taken = [], 0
        batch.append(point)
        taken += needed
    if batch:
        yield batch


def connections_of(point: FaultPoint) -> int:
    return WORKER_CONNECTIONS if "worker" in point.scenario else SCENARIO_CONNECTIONS
