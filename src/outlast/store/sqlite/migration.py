"""The table of applied migrations, in a SQLite file."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from ...model.errors import SchemaMismatch
from .. import schema
from .connection import transaction

log = logging.getLogger("outlast.migrate")


def migrate(
    connection: sqlite3.Connection, prefix: str, known: tuple[schema.SchemaMigration, ...]
) -> list[int]:
    """Apply the missing migrations; returns their versions."""
    done: list[int] = []
    while True:
        with transaction(connection):  # all or nothing
            found = read_version(connection, prefix)
            step = schema.next_step(known, found)
            online = bool(found.version and step and step[0].steps)
            for migration in () if online else step:
                apply_migration(connection, prefix, migration)
        if not step:
            return done
        if online:
            apply_steps(connection, prefix, step[0])
        done += [migration.version for migration in step]


def check_tables(connection: sqlite3.Connection, path: Path, prefix: str) -> None:
    """Check that a file that replaced another one has the tables."""
    found = read_version(connection, prefix)
    if not found.version:
        raise SchemaMismatch(
            reason=f"{path} was replaced by a database without our tables: restore the"
            " right file, or run `outlast migrate`"
        )
    schema.check(found)


def apply_migration(
    connection: sqlite3.Connection, prefix: str, migration: schema.SchemaMigration
) -> None:
    """Run a migration and record it, in the caller's transaction."""
    name = f"{prefix}_migration"
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {name} (version INTEGER NOT NULL PRIMARY KEY,"
        " compatible_from INTEGER NOT NULL, applied_at TEXT NOT NULL)"
    )
    for statement in migration.statements:
        connection.execute(statement)
    _record(connection, prefix, migration)


def _record(connection: sqlite3.Connection, prefix: str, migration: schema.SchemaMigration) -> None:
    connection.execute(
        f"INSERT OR IGNORE INTO {prefix}_migration"  # noqa: S608 - checked name
        " VALUES (?, ?, datetime('now'))",
        (migration.version, migration.compatible_from),
    )


def apply_steps(
    connection: sqlite3.Connection, prefix: str, migration: schema.SchemaMigration
) -> None:
    """Run the remaining steps of a migration, each in a transaction of its own, and record them.
    There is one writer at a time: of two processes that migrate, each does what the other has
    not."""
    table, version = f"{prefix}_migration_step", migration.version
    for number, step in enumerate(migration.steps, 1):
        log.info(
            "version %d, step %d of %d: %s", version, number, len(migration.steps), step.purpose
        )
        rows, more = 0, True
        while more:
            with transaction(connection):
                done = connection.execute(
                    f"SELECT 1 FROM {table} WHERE version = ? AND step = ?",  # noqa: S608
                    (version, number),
                ).fetchall()
                changed = 0
                for statement in () if done else step.statements:
                    changed = connection.execute(schema.blocking(statement)).rowcount
                more = not done and step.kind == schema.BACKFILL and changed > 0
                if not done and not more:
                    connection.execute(
                        f"INSERT INTO {table} VALUES (?, ?, datetime('now'))",  # noqa: S608
                        (version, number),
                    )
            if more:
                rows += changed
                log.info("… %s rows", f"{rows:,}")
    with transaction(connection):
        _record(connection, prefix, migration)


def read_version(connection: sqlite3.Connection, prefix: str) -> schema.SchemaVersion:
    """The version of the tables; none, if there are no tables."""
    name = f"{prefix}_migration"
    exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if not connection.execute(exists, (name,)).fetchall():
        return schema.SchemaVersion()
    query = f"SELECT version, compatible_from FROM {name}"  # noqa: S608 - checked name
    return schema.SchemaVersion.of(connection.execute(query).fetchall())
