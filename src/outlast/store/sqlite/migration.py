"""The table of applied migrations, in a SQLite file."""

from __future__ import annotations

import sqlite3

from .. import schema


def apply_migration(
    connection: sqlite3.Connection, prefix: str, migration: schema.Migration
) -> None:
    """Run a migration and record it, in the caller's transaction."""
    name = f"{prefix}_migration"
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {name} (version INTEGER NOT NULL PRIMARY KEY,"
        " compatible_from INTEGER NOT NULL, applied_at TEXT NOT NULL)"
    )
    for statement in migration.statements:
        connection.execute(statement)
    connection.execute(
        f"INSERT INTO {name} VALUES (?, ?, datetime('now'))",  # noqa: S608 - checked name
        (migration.version, migration.compatible_from),
    )


def read_version(connection: sqlite3.Connection, prefix: str) -> schema.SchemaVersion:
    """The version of the tables; none, if there are no tables."""
    name = f"{prefix}_migration"
    exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if not connection.execute(exists, (name,)).fetchall():
        return schema.SchemaVersion()
    query = f"SELECT version, compatible_from FROM {name}"  # noqa: S608 - checked name
    return schema.SchemaVersion.of(connection.execute(query).fetchall())
