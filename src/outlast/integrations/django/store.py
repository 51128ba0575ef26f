"""A store on Django's own connection, always in its transaction.

Web processes, commands and tests use it. A worker has a store with connections of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar

from ...model.errors import SchemaMismatch, Unsupported
from ...model.settings import StoreSettings
from ...ops.operation import Op
from ...store import Store, schema
from ...store.address import Address, check_schema
from ...store.caller.errors import translate_caller_errors
from ...store.caller.frameworks import DjangoSession
from ...store.dialects import POSTGRES
from ...store.runner import drive
from .database_url import address_of, refusal

T = TypeVar("T")

P = ParamSpec("P")

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class DjangoStore(Store):
    """Runs every operation on `connections[alias]` of the calling thread."""

    thread_bound: ClassVar[bool] = True

    def __init__(self, alias: str, schema: str, settings: StoreSettings) -> None:
        check_schema(schema)
        self.alias = alias
        self._schema = schema
        self._refusal = refusal(alias)  # reported by a system check, and on first use
        super().__init__(self.address, settings)

    @property
    def address(self) -> Address:
        """The address, read each time: tests change the name of the database."""
        return address_of(self.alias, self._schema)

    @address.setter
    def address(self, _: Address) -> None: ...

    @property
    def can_notify(self) -> bool:  # type: ignore[override]
        return bool(self._connection().vendor == "postgresql")

    def _connection(self) -> Any:
        from django.db import connections

        return connections[self.alias]

    def leads_here(self, driver: object) -> bool:
        return self._connection().connection is driver

    # Operations

    def run_once(self, op: Op[T]) -> T:
        with translate_caller_errors():
            return drive(op, DjangoSession(self._connection(), self))

    async def arun_once(self, op: Op[T]) -> T:
        return await in_connection_thread(self.run_once, op)

    async def aready(self, create: bool = True) -> None:
        if not self._checked:
            await in_connection_thread(self.ready, create)

    async def aready_beside_caller(self, create: bool = True) -> None:
        await self.aready(create)

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Run the attempt once: the owner of a failed transaction decides whether to repeat it."""
        return attempt()

    # Tables

    def prepare_schema(self, create: bool) -> None:
        if self._refusal is not None:
            raise Unsupported(reason=self._refusal)
        with translate_caller_errors():
            found = self._version()
        if not found.version:
            raise SchemaMismatch(
                reason=f"the database {self.alias!r} has no tables of Outlast:"
                " run `python manage.py migrate`"
            )
        schema.check(found)

    def migrate(self) -> list[int]:
        """Migrate in one transaction, or in that of a Django migration."""
        if self._refusal is not None:
            raise Unsupported(reason=self._refusal)
        known = schema.migrations(self.address.dialect, self._schema)
        done: list[int] = []
        with translate_caller_errors(), self._transaction() as cursor:
            if self.address.dialect == POSTGRES:
                cursor.execute(LOCK, [f"outlast migrate {self._schema}"])
            while step := schema.next_step(known, found := self._version()):
                if found.version and step[0].steps:
                    raise SchemaMismatch(
                        reason=f"version {step[0].version} of the tables is applied in steps, not"
                        " in a transaction of Django's: run `outlast migrate` with its URL"
                    )
                for migration in step:
                    self._apply(cursor, migration)
                done += [migration.version for migration in step]
        return done

    def pending_migrations(self) -> tuple[schema.SchemaMigration, ...]:
        return schema.pending(
            schema.migrations(self.address.dialect, self._schema), self._version()
        )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        from django.db import transaction

        with transaction.atomic(using=self.alias), self._connection().cursor() as cursor:
            yield cursor

    def _apply(self, cursor: Any, migration: schema.SchemaMigration) -> None:
        table = self._migration_table()
        if self.address.dialect == POSTGRES:
            cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
            columns, now = "applied_at timestamptz NOT NULL", "now()"
        else:
            columns, now = "applied_at TEXT NOT NULL", "datetime('now')"
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (version INTEGER NOT NULL PRIMARY KEY,"
            f" compatible_from INTEGER NOT NULL, {columns})"
        )
        for statement in migration.statements:
            cursor.execute(statement)
        cursor.execute(
            f"INSERT INTO {table} VALUES (%s, %s, {now})",  # noqa: S608 - checked name
            [migration.version, migration.compatible_from],
        )

    def _migration_table(self) -> str:
        if self.address.dialect == POSTGRES:
            return f'"{self._schema}".migration'
        return f"{self._schema}_migration"

    def _version(self) -> schema.SchemaVersion:
        if self.address.dialect == POSTGRES:
            exists = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'migration'"
            name = self._schema
        else:
            exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = %s"
            name = self._migration_table()
        with self._connection().cursor() as cursor:
            cursor.execute(exists, [name])
            if cursor.fetchone() is None:
                return schema.SchemaVersion()
            table = self._migration_table()
            cursor.execute(f"SELECT version, compatible_from FROM {table}")  # noqa: S608
            return schema.SchemaVersion.of([(row[0], row[1]) for row in cursor.fetchall()])

    # A worker has connections of its own (`DjangoOutlast.worker`).

    async def listen_for_jobs(
        self, worker: str, notify: Callable[[str], None], every: float
    ) -> None:
        self._not_for_workers()

    async def listen_for_events(self, notify: Callable[[], None], every: float) -> None:
        await asyncio.Event().wait()  # the caller polls

    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        return []  # unknown here; leases show deaths

    def confirm_locked(self, workers: Sequence[str]) -> list[str]:
        return []

    def clone(self, connections: int | None = None, lock_timeout: float | None = None) -> Store:
        return self._not_for_workers()

    def _not_for_workers(self) -> NoReturn:
        raise Unsupported(reason="a worker cannot run on Django's connection: use ol.worker(…)")

    def close(self) -> None:
        """Nothing to do: Django closes its connections."""

    async def aclose(self) -> None:
        self.close()


async def in_connection_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function from async code, in the thread whose connection the surrounding sync code
    uses."""
    from asgiref.sync import sync_to_async

    return await sync_to_async(call)(*args, **kwargs)
