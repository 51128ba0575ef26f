"""The PostgreSQL store, with psycopg 3: for a fleet.

Behind a pooler nothing depends on the session: no prepared statements, no search_path, no session
locks, and timeouts are set in every transaction. On direct connections, timeouts are set at the
start, and statements are prepared whose plan cannot go stale: an INSERT of given rows, and the
statements of a worker's claims on its hot-path connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import psycopg

from ...model.errors import NoDatabase, StoreUnavailable, Unsupported
from ...model.settings import StoreSettings
from ...ops.operation import Op, Statement
from .. import schema
from ..address import Address
from ..base import Store
from ..dialects import POSTGRES
from ..runner import adrive, drive
from ..statements import Query
from .connection import AsyncDeadlineConnection, DeadlineConnection
from .connection_parameters import connection_parameters, keepalive_settings, time_limits
from .errors import first_line, translate_errors
from .migration import apply_migration, read_version
from .online_migration import OnlineMigration, hold_migration_lock, retry_while_locked
from .paramstyle import psycopg_text
from .partitions import Partitions
from .pool import Pool, Pools
from .session import AsyncPostgresSession, PostgresSession, Sent

T = TypeVar("T")

PREPARED_INSERTS = frozenset(
    "insert_job insert_job_and_notify insert_jobs insert_edges insert_flows notify_workers".split()
)  # one plan fits all parameters
PREPARED_ON_HOT_PATH = frozenset(  # HOT_PATH_OPTIONS make one plan fit
    "claim claim_on claim_across promote_due succeed succeed_tied succeed_and_claim_on"
    " notify_followers claim_offers claim_offers_on hold_claims lock_lanes claim_lanes"
    " claim_ordered_lanes claim_longest_due claim_lanes_longest_due lock_even_lanes"
    " claim_even_lanes kept_waits first_signal take_signal_of_claim".split()
)


class PostgresStore(Store):
    can_notify = True
    can_copy = True

    def __init__(self, address: Address, settings: StoreSettings) -> None:
        super().__init__(address, settings)
        self.pooled = False  # detected on connecting
        self._hot_path = False
        # Statements by name: their texts, and whether they are prepared.
        self._texts: dict[str, tuple[Query, str, bool]] = {}
        limits = settings.pool_size, settings.deadline
        self._pools = Pools(self._connect, self._aconnect, *limits)
        # Separate: connections lent to handlers must not starve our own statements.
        self.handler_pool = Pools(self._connect, self._aconnect, *limits)
        self.partitions = Partitions(self._acquire, address.schema, lambda: not self.pooled)

    @property
    def _pool(self) -> Pool:
        return self._pools.threads

    def _acquire(self) -> AbstractContextManager[DeadlineConnection]:
        return self._pool.acquire()

    def run_once(self, op: Op[T]) -> T:
        until = time.monotonic() + self.settings.deadline
        try:
            with translate_errors(), self._pool.acquire() as link:
                link.until = until
                return drive(op, PostgresSession(self, link))
        except StoreUnavailable:
            self._pool.clear()
            raise

    async def arun_once(self, op: Op[T]) -> T:
        until = time.monotonic() + self.settings.deadline
        pool = self._pools.loop_pool()
        try:
            with translate_errors():
                async with pool.acquire() as link:
                    link.until = until
                    return await adrive(op, AsyncPostgresSession(self, link))
        except StoreUnavailable:
            await pool.clear()
            raise

    def render(self, statement: Statement) -> Sent:
        """A statement in psycopg's form."""
        query = self.queries[statement.name]
        known = self._texts.get(query.name)
        if known is None or known[0] is not query:  # a test's clock replaces queries
            known = self._texts[query.name] = (query, psycopg_text(query), self._is_kept(query))
        return known[1], statement.bind, known[2] and not self.pooled

    def _is_kept(self, query: Query) -> bool:
        """Whether a statement is prepared on direct connections."""
        name = query.name
        kept = name in PREPARED_INSERTS or (self._hot_path and name in PREPARED_ON_HOT_PATH)
        return kept and self.settings.prepare

    def begin_statements(self) -> list[Sent]:
        """The statements that begin a transaction."""
        return [(text, {}, False) for text in ("BEGIN", *self.transaction_settings())]

    def transaction_settings(self) -> list[str]:
        """The settings of a transaction behind a pooler, where the session cannot have them."""
        if not self.pooled:
            return []
        terms = {"transaction_isolation": "'read committed'", **time_limits(self.settings)}
        return [f"SET LOCAL {name} = {value}" for name, value in terms.items()]

    def _parameters(self) -> dict[str, Any]:
        return connection_parameters(
            self.address.url, self.settings, pooled=self.pooled, hot_path=self._hot_path
        )

    def _connect(self) -> DeadlineConnection:
        try:
            link = DeadlineConnection.connect(self.address.url, **self._parameters())
        except psycopg.OperationalError as error:
            if self.pooled or not _refuses_options(error):
                raise StoreUnavailable(reason=first_line(error)) from error
            self.pooled = True
            return self._connect()
        self.addresses.add((link.info.host, link.info.port, link.info.dbname))
        link.deadline = self.settings.deadline
        return link

    async def _aconnect(self) -> AsyncDeadlineConnection:
        try:
            link = await AsyncDeadlineConnection.connect(self.address.url, **self._parameters())
        except psycopg.OperationalError as error:
            raise StoreUnavailable(reason=first_line(error)) from error
        link.deadline = self.settings.deadline
        return link

    def prepare_schema(self, create: bool) -> None:
        with translate_errors(), self._pool.acquire() as link:
            self._check_encoding(link)
            self._find_pooler(link)
            found = read_version(link, self.address.schema)
        if not found.version and not create:
            raise NoDatabase(place=f"{self.address} (schema {self.address.schema})")
        if not found.version:
            self.migrate()
        else:
            schema.check(found)
        if self._hot_path:
            self._pool.clear()  # a worker continues with asyncio: this one would be idle

    def _check_encoding(self, link: DeadlineConnection) -> None:
        """Refuse encodings that cannot hold any text. SQL_ASCII does not validate bytes, and others
        lack characters: a stored job could be unreadable, or its result not storable."""
        encoding = link.info.parameter_status("server_encoding") or "UTF8"
        if encoding not in {"UTF8", "UNICODE"}:
            name = link.info.dbname
            raise Unsupported(
                reason=f"the database {name!r} has the encoding {encoding}, which cannot hold every"
                " JSON text: keep jobs in one created with createdb --encoding=UTF8"
                " --template=template0 NAME (or CREATE DATABASE name ENCODING 'UTF8' TEMPLATE"
                " template0)"
            )

    def _find_pooler(self, link: DeadlineConnection) -> None:
        """Detect a pooler: the backend's pid is not the one at the connection's start."""
        query = "SELECT pg_backend_pid(), current_setting('statement_timeout')"
        (pid, _), *_ = link.execute(query).fetchall()
        self.pooled = self.pooled or pid != link.info.backend_pid

    def migrate(self) -> list[int]:
        done: set[int] = set()  # also in a try whose response was lost
        self.retrying(lambda: self._migrate(done))
        return sorted(done)

    def _migrate(self, done: set[int]) -> None:
        with translate_errors(), self._pool.acquire() as link:
            self._check_encoding(link)
            while step := retry_while_locked(link, lambda: self._migrate_on(link, done)):
                if step[0].version not in done:  # for tables in use
                    OnlineMigration(link, self.address.schema, step[0], self.pooled).run()
                    done.add(step[0].version)

    def pending_migrations(self) -> tuple[schema.SchemaMigration, ...]:
        known = schema.migrations(POSTGRES, self.address.schema)
        with translate_errors(), self._pool.acquire() as link:
            return schema.pending(known, read_version(link, self.address.schema))

    def _migrate_on(
        self, link: DeadlineConnection, done: set[int]
    ) -> tuple[schema.SchemaMigration, ...]:
        """Apply the next migrations in one transaction, unless they have steps; returns them."""
        with link.transaction():
            for term in self.transaction_settings():
                link.execute(term)
            # A transaction lock, not a session lock: it cannot be left behind in a pooler.
            hold_migration_lock(link, self.address.schema)
            known = schema.migrations(POSTGRES, self.address.schema)
            found = read_version(link, self.address.schema)
            step = schema.next_step(known, found)
            if found.version and step and step[0].steps:
                return step
            for migration in step:
                apply_migration(link, self.address.schema, migration)
                done.add(migration.version)
        return step

    async def listen_for_jobs(
        self, worker: str, notify: Callable[[str], None], every: float
    ) -> None:
        """Listen on a separate connection, which also holds the liveness lock: the server releases
        it when the connection ends. A pooler would soon lend its connection to others."""
        if self.pooled:
            await self._prove_reachable()
            notify("")
            await asyncio.Event().wait()
        with translate_errors():
            link = await self._aconnect()
            try:
                await link.execute(*keepalive_settings(self.settings))
                await link.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (worker,))
                self.holds_liveness_lock = True
                text, given, _ = self.render(Statement("prove_liveness", {"id": worker}))
                await link.execute(text, given)
                await link.execute(f'LISTEN "{self.channel}"')
                link.deadline = None  # it waits for notifications
                notify("")  # jobs may have arrived before the LISTEN
                async for notice in link.notifies():
                    notify(notice.payload)
            finally:
                self.holds_liveness_lock = False
                await link.close()

    async def _prove_reachable(self) -> None:
        """Fail unless the database responds. A pooler stays up when its server is gone."""
        with translate_errors():
            async with self._pools.loop_pool().acquire() as link:
                await link.execute("SELECT 1")

    async def listen_for_events(self, notify: Callable[[], None], every: float) -> None:
        if self.pooled:
            await asyncio.Event().wait()
        with translate_errors():
            link = await self._aconnect()
            try:
                await link.execute(f'LISTEN "{self.events_channel}"')
                link.deadline = None
                notify()
                async for _ in link.notifies():
                    notify()
            finally:
                await link.close()

    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        return list(workers)  # the statement that found them tried their locks

    def confirm_locked(self, workers: Sequence[str]) -> list[str]:
        return list(workers)  # likewise

    def clone(self, connections: int | None = None, lock_timeout: float | None = None) -> Store:
        settings = self._clone_settings(connections, lock_timeout)
        twin = PostgresStore(self.address, settings)  # not hot path: its other statements may sort
        twin.queries = self.queries  # with the same clock
        twin._checked, twin.pooled = self._checked, self.pooled
        return twin

    def hot_path_clone(self) -> PostgresStore:
        twin = self.clone()
        assert isinstance(twin, PostgresStore)
        twin._hot_path = True
        return twin

    def close(self) -> None:
        for pools in (self._pools, self.handler_pool):
            pools.threads.clear()
            pools.abandon()

    async def aclose(self) -> None:
        for pools in (self._pools, self.handler_pool):
            await pools.loop_pool().clear()
            pools.threads.clear()


def _refuses_options(error: psycopg.Error) -> bool:
    """Whether PgBouncer refuses to pass start-up options on."""
    return "unsupported startup parameter" in str(error)
