"""PostgreSQL, by psycopg 3: for a fleet.

Behind a pooler nothing depends on the session: no prepared statements, no search_path, no session
locks, and the timeouts that every session should have are set in every transaction. On connections
of our own those are given when it starts, and statements are prepared whose plan cannot go stale:
an INSERT of given rows, and what a worker claims with on its steady connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo

from ..model.errors import NoDatabase, StoreUnavailable, Unsupported
from ..model.settings import StoreSettings
from ..ops.statement import Op, Statement
from . import schema
from .address import Address
from .base import Store
from .links import AsyncLink, Link
from .pools import Pool, Pools
from .postgres_errors import first_line, understood
from .postgres_session import AsyncPostgresSession, PostgresSession, Sent
from .postgres_text import psycopg_text
from .runner import adrive, drive
from .statements import POSTGRES

T = TypeVar("T")

KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}  # seconds

# Whatever the server's default: who locks a row, and then counts, must see what came before.
ISOLATION = r"-c default_transaction_isolation=read\ committed"


PLAIN = frozenset({"insert_jobs", "insert_edges", "insert_flows", "wake_workers"})  # one plan fits
ORDERED = frozenset(  # one is made to fit
    "claim claim_on claim_across promote_due succeed succeed_and_claim_on tell_followers"
    " claim_offers claim_offers_on claim_offers_across hold_claims".split()
)
NEVER_BY_ITSELF = 2**31  # psycopg would prepare whatever was said so often

# What a worker claims with is planned once: along the indexes, whatever the tables held and the
# statistics said at that moment. (A plan whose cost is put high on purpose is not to be compiled
# because of it.) Other statements would find no good plan so, or keep a bad one: a finish that was
# planned when the table was empty reads all of it.
STEADY = "-c plan_cache_mode=force_generic_plan -c jit=off " + " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")
)


OURS = frozenset({"options", "client_encoding"})  # whatever the URL says


class PostgresStore(Store):
    wakes = True

    def __init__(self, address: Address, settings: StoreSettings) -> None:
        super().__init__(address, settings)
        self.pooled = False  # found out when we connect
        self._steady = False
        limits = settings.pool_size, settings.deadline
        self._pools = Pools(self._connect, self._aconnect, *limits)
        # What handlers borrow is apart from what we need ourselves.
        self.guests = Pools(self._connect, self._aconnect, *limits)

    @property
    def _pool(self) -> Pool:
        return self._pools.threads

    def once(self, op: Op[T]) -> T:
        until = time.monotonic() + self.settings.deadline
        try:
            with understood(), self._pool.lend() as link:
                link.until = until
                return drive(op, PostgresSession(self, link))
        except StoreUnavailable:
            self._pool.clear()
            raise

    async def aonce(self, op: Op[T]) -> T:
        until = time.monotonic() + self.settings.deadline
        pool = self._pools.mine()
        try:
            with understood():
                async with pool.lend() as link:
                    link.until = until
                    return await adrive(op, AsyncPostgresSession(self, link))
        except StoreUnavailable:
            await pool.clear()
            raise

    def render(self, statement: Statement) -> Sent:
        """A statement as psycopg wants it."""
        query = self.queries[statement.name]
        kept = query.name in PLAIN or (self._steady and query.name in ORDERED)
        return psycopg_text(query), statement.given, kept and self._prepares

    @property
    def _prepares(self) -> bool:
        return self.settings.prepare and not self.pooled

    def opening(self) -> list[Sent]:
        """What begins a transaction."""
        return [(text, {}, False) for text in ("BEGIN", *self.terms())]

    def terms(self) -> list[str]:
        """What a transaction says first, where the session could not."""
        if not self.pooled:
            return []
        terms = {"transaction_isolation": "'read committed'", **self._limits()}
        return [f"SET LOCAL {name} = {value}" for name, value in terms.items()]

    def _limits(self) -> dict[str, int]:
        """Milliseconds, by PostgreSQL's names."""
        return {
            "statement_timeout": round(self.settings.statement_timeout * 1000),
            "lock_timeout": round(self.settings.lock_timeout * 1000),
            "idle_in_transaction_session_timeout": round(self.settings.idle_timeout * 1000),
        }

    def _parameters(self) -> dict[str, Any]:
        wait = self.settings.connect_timeout
        given: dict[str, Any] = {
            "connect_timeout": max(2, round(wait)),
            "application_name": "outlast",
            "client_encoding": "UTF8",
            **KEEPALIVES,
            "tcp_user_timeout": round(self.settings.deadline * 1000),
        }
        url = conninfo.conninfo_to_dict(self.address.url)
        if not self.pooled:
            limits = " ".join(f"-c {name}={value}" for name, value in self._limits().items())
            steady = STEADY if self._steady else ""
            given["options"] = f"{url.get('options') or ''} {limits} {ISOLATION} {steady}".strip()
        return {
            **{k: v for k, v in given.items() if k not in url or k in OURS},
            "autocommit": True,
            "prepare_threshold": None if self.pooled else NEVER_BY_ITSELF,
        }

    def _connect(self) -> Link:
        try:
            link = Link.connect(self.address.url, **self._parameters())
        except psycopg.OperationalError as error:
            if self.pooled or not _refuses_options(error):
                raise StoreUnavailable(reason=first_line(error)) from error
            self.pooled = True
            return self._connect()
        self.seats.add((link.info.host, link.info.port, link.info.dbname))
        link.deadline = self.settings.deadline
        return link

    async def _aconnect(self) -> AsyncLink:
        try:
            link = await AsyncLink.connect(self.address.url, **self._parameters())
        except psycopg.OperationalError as error:
            raise StoreUnavailable(reason=first_line(error)) from error
        link.deadline = self.settings.deadline
        return link

    def prepare_schema(self, create: bool) -> None:
        with understood(), self._pool.lend() as link:
            self._check_encoding(link)
            self._find_pooler(link)
            found = self._version(link)
        if found is None and not create:
            raise NoDatabase(place=f"{self.address} (schema {self.address.schema})")
        if found is None:
            self.migrate()
        else:
            schema.check(*found)
        if self._steady:
            self._pool.clear()  # a worker goes on with asyncio: this one would only be held

    def _check_encoding(self, link: Link) -> None:
        """Any text must fit. SQL_ASCII takes every byte for what it is, and others lack characters:
        a job would be stored that nobody can read, or its result could not be stored at all."""
        encoding = link.info.parameter_status("server_encoding") or "UTF8"
        if encoding not in {"UTF8", "UNICODE"}:
            name = link.info.dbname
            raise Unsupported(
                reason=f"the database {name!r} has the encoding {encoding}, which cannot hold every"
                " JSON text: keep jobs in one that was made with createdb --encoding=UTF8"
                " --template=template0 NAME (or CREATE DATABASE name ENCODING 'UTF8' TEMPLATE"
                " template0)"
            )

    def _find_pooler(self, link: Link) -> None:
        """Behind a pooler the process we talk to is not the one that greeted us."""
        query = "SELECT pg_backend_pid(), current_setting('statement_timeout')"
        (pid, _), *_ = link.execute(query).fetchall()
        self.pooled = self.pooled or pid != link.info.backend_pid

    def _version(self, link: Link) -> tuple[int, int] | None:
        name = f'"{self.address.schema}".migration'
        # Read from the catalogue's own tables: to_regclass answers from a cache, which is not
        # refreshed by waiting for the lock under which somebody else creates the table.
        query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'migration'"
        if link.execute(query, (self.address.schema,)).fetchone() is None:
            return None
        query = f"SELECT max(version), max(compatible_from) FROM {name}"  # noqa: S608
        version, compatible_from = link.execute(query).fetchone() or (0, 0)
        return (version, compatible_from) if version else None

    def migrate(self) -> list[int]:
        done: set[int] = set()  # also by a try whose answer got lost
        self.insist(lambda: self._migrate(done))
        return sorted(done)

    def _migrate(self, done: set[int]) -> None:
        with understood(), self._pool.lend() as link:
            self._check_encoding(link)
            while self._migrate_on(link, done):
                pass

    def _migrate_on(self, link: Link, done: set[int]) -> bool:
        with link.transaction():
            for term in self.terms():
                link.execute(term)
            # A transaction's lock, not a session's: it cannot be left behind in a pooler.
            link.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
                (f"outlast migrate {self.address.schema}",),
            )
            known = schema.migrations(POSTGRES, self.address.schema)
            step = schema.next_step(known, (self._version(link) or (0, 0))[0])
            for migration in step:
                self._apply(link, migration)
                done.add(migration.version)
        return bool(step)

    def _apply(self, link: Link, migration: schema.Migration) -> None:
        """In one round trip: on a slow line, twenty of them would take far too long."""
        name = f'"{self.address.schema}".migration'
        with link.pipeline():
            link.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.address.schema}"')
            link.execute(
                f"CREATE TABLE IF NOT EXISTS {name} (version integer PRIMARY KEY,"
                " compatible_from integer NOT NULL, applied_at timestamptz NOT NULL)"
            )
            for statement in migration.statements:
                link.execute(statement)
            link.execute(
                f"INSERT INTO {name} VALUES (%s, %s, now())",  # noqa: S608 - checked name
                (migration.version, schema.COMPATIBLE_FROM[migration.version]),
            )

    async def watch(self, worker: str, woken: Callable[[str], None], every: float) -> None:
        """Listen on a connection of its own, which also holds the liveness lock: the server frees
        it the moment the connection ends. A pooler's connection would not be ours for long."""
        if self.pooled:
            woken("")
            await asyncio.Event().wait()
        with understood():
            link = await self._aconnect()
            try:
                await link.execute(*self._hanging_up())
                await link.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (worker,))
                self.proving = True
                text, given, _ = self.render(Statement("prove_life", {"id": worker}))
                await link.execute(text, given)
                await link.execute(f'LISTEN "{self.channel}"')
                link.deadline = None  # waiting is what it is for
                woken("")  # whatever came while nobody listened
                async for notice in link.notifies():
                    woken(notice.payload)
            finally:
                self.proving = False
                await link.close()

    async def follow(self, woken: Callable[[], None], every: float) -> None:
        if self.pooled:
            await asyncio.Event().wait()
        with understood():
            link = await self._aconnect()
            try:
                await link.execute(f'LISTEN "{self.events_channel}"')
                link.deadline = None
                woken()
                async for _ in link.notifies():
                    woken()
            finally:
                await link.close()

    def _hanging_up(self) -> tuple[str, dict[str, str]]:
        """The server is to miss us as soon as we would miss it: a session whose client is gone
        without a word would keep its lock for hours. It ignores this on a Unix socket."""
        text = (
            "SELECT set_config('tcp_keepalives_idle', %(keepalives_idle)s, false),"
            " set_config('tcp_keepalives_interval', %(keepalives_interval)s, false),"
            " set_config('tcp_keepalives_count', %(keepalives_count)s, false),"
            " set_config('tcp_user_timeout', %(user_timeout)s, false)"
        )
        given = {**KEEPALIVES, "user_timeout": round(self.settings.deadline * 1000)}
        return text, {name: str(value) for name, value in given.items()}

    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        return list(workers)  # the statement that found them has tried their locks

    def confirm_locked(self, workers: Sequence[str]) -> list[str]:
        return list(workers)  # likewise

    def twin(self, connections: int | None = None, lock_timeout: float | None = None) -> Store:
        settings = self._settings_of_twin(connections, lock_timeout)
        twin = PostgresStore(self.address, settings)  # not steady: some of what others say sorts
        twin._checked, twin.pooled = self._checked, self.pooled
        return twin

    def steady(self) -> PostgresStore:
        twin = self.twin()
        assert isinstance(twin, PostgresStore)
        twin._steady = True
        return twin

    def drop(self) -> None:
        """Remove the schema and all that is in it: for those who made one of their own."""
        with understood(), self._pool.lend() as link:
            link.execute(f'DROP SCHEMA IF EXISTS "{self.address.schema}" CASCADE')

    def close(self) -> None:
        for pools in (self._pools, self.guests):
            pools.threads.clear()
            pools.abandon()

    async def aclose(self) -> None:
        for pools in (self._pools, self.guests):
            await pools.mine().clear()
            pools.threads.clear()


def _refuses_options(error: psycopg.Error) -> bool:
    """PgBouncer's word for: it will not pass start-up options on."""
    return "unsupported startup parameter" in str(error)
