"""Partitions of the archive: one table for each day (UTC) on which jobs ended.

A new table is attached without a lock that blocks others. To drop one, it is detached first,
concurrently if possible, so that readers of the archive continue. A pooler may send a statement
inside a transaction; there, the archive is locked for the detach, and a pass that cannot get that
lock soon leaves it to the next one. After a kill, each step is found done or undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

import psycopg

from ...model.errors import StoreError
from ...ops.archive import DAY_S, partition_day, partition_name
from .connection import DeadlineConnection
from .errors import first_line, translate_errors

LOCK_WAIT_MS = 500  # maximum time that other sessions queue behind us
MISSING, ATTACHED, PENDING, DETACHED = "missing", "attached", "pending", "detached"
CONCURRENTLY_FROM = 140_000  # the first version of the server that detaches without a lock


class Partitions:
    """Creates and drops the partitions."""

    def __init__(
        self,
        acquire: Callable[[], AbstractContextManager[DeadlineConnection]],
        schema: str,
        in_session: Callable[[], bool],
    ) -> None:
        self._acquire = acquire
        self._schema = f'"{schema}"'
        self._in_session = in_session  # a statement is sent to one session, outside a transaction

    def create(self, day: int) -> bool:
        """Create the table of a day, unless it exists. False: there is a detached one, which is not
        part of the archive."""
        name = partition_name(day)
        start, end = (
            datetime.fromtimestamp(second, UTC).isoformat()
            for second in (day * DAY_S, (day + 1) * DAY_S)
        )
        with self._transaction() as link:
            if (found := self._state(link, name)) == MISSING:
                table = f"{self._schema}.{name}"
                link.execute(f"CREATE TABLE {table} (LIKE {self._schema}.past INCLUDING DEFAULTS)")
                link.execute(
                    f"ALTER TABLE {self._schema}.past ATTACH PARTITION {table}"
                    f" FOR VALUES FROM ('{start}') TO ('{end}')"
                )
        return found in (MISSING, ATTACHED)

    def drop(self, name: str) -> None:
        """Drop a day's table with all of its jobs, and their counts."""
        day = datetime.fromtimestamp(partition_day(name) * DAY_S, UTC).date().isoformat()
        if self._in_session():
            self._detach_concurrently(name)
        with self._transaction() as link:
            table = f"{self._schema}.{name}"
            if (found := self._state(link, name)) in (ATTACHED, PENDING):
                finalize = " FINALIZE" if found == PENDING else ""
                link.execute(f"ALTER TABLE {self._schema}.past DETACH PARTITION {table}{finalize}")
            link.execute(f"DROP TABLE IF EXISTS {table}")
            link.execute(
                f"DELETE FROM {self._schema}.past_count WHERE day = %s",  # noqa: S608 - checked name
                (day,),
            )

    def _detach_concurrently(self, name: str) -> None:
        with translate_errors(), self._acquire() as link:
            if (
                link.info.server_version >= CONCURRENTLY_FROM
                and self._state(link, name) == ATTACHED
            ):
                link.execute(
                    f"ALTER TABLE {self._schema}.past"
                    f" DETACH PARTITION {self._schema}.{name} CONCURRENTLY"
                )

    def _state(self, link: DeadlineConnection, name: str) -> str:
        """The state of a day's table: missing, attached, pending or detached. (An interrupted
        concurrent detach is pending; servers before 14 have no such column.)"""
        row = link.execute(
            "SELECT c.relispartition,"
            " coalesce((to_jsonb(i) ->> 'inhdetachpending')::boolean, false)"
            " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid"
            " WHERE n.nspname = %s AND c.relname = %s",
            (self._schema.strip('"'), name),
        ).fetchone()
        if row is None:
            return MISSING
        return PENDING if row[1] else ATTACHED if row[0] else DETACHED

    @contextmanager
    def _transaction(self) -> Iterator[DeadlineConnection]:
        """A transaction for one process at a time, with a short lock timeout."""
        try:
            with translate_errors(), self._acquire() as link, link.transaction():
                link.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                link.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
                    (f"outlast archive {self._schema}",),
                )
                yield link
        except StoreError as error:
            if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise StoreError(
                    "the archive needs a role that owns the tables and may create some in the"
                    f" schema {self._schema}: {first_line(error.__cause__)}"
                ) from error
            raise
