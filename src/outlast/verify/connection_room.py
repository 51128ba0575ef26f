"""How many connections a campaign may take: PostgreSQL's default allows 100, for everybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from .place import Site
from .points import Point

SHARE = 0.25  # of what is free when a campaign starts: several run at once, and not alone
WORKER = 6  # connections that a whole worker holds
OTHERS = 2  # and a walk of any other path: its own, and that of a caller or a handler

FREE = """
SELECT current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0)
    - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""


def room_for(site: Site) -> float:
    """Connections that a campaign may hold open at once; SQLite has no limit."""
    if site.is_sqlite:
        return float("inf")
    import psycopg

    with closing(psycopg.connect(site.address.url)) as connection:
        row = connection.execute(FREE).fetchone()
        return max(WORKER, SHARE * row[0]) if row else WORKER


def batches(points: Sequence[Point], room: float, most: int) -> Iterator[list[Point]]:
    """The points in batches of at most so many, whose processes have room together."""
    batch: list[Point] = []
    taken = 0
    for point in points:
        needed = connections_of(point)
        if batch and (len(batch) == most or taken + needed > room):
            yield batch
            batch, taken = [], 0
        batch.append(point)
        taken += needed
    if batch:
        yield batch


def connections_of(point: Point) -> int:
    return WORKER if "worker" in point.path else OTHERS
