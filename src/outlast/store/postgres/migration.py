"""The table of applied migrations, in a PostgreSQL schema."""

from __future__ import annotations

from .. import schema
from .connection import DeadlineConnection


def apply_migration(link: DeadlineConnection, name: str, migration: schema.SchemaMigration) -> None:
    """Run a migration and record it, in the caller's transaction and in one round trip: twenty
    would take far too long on a slow line."""
    table = f'"{name}".migration'
    with link.pipeline():
        link.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
        link.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (version integer PRIMARY KEY,"
            " compatible_from integer NOT NULL, applied_at timestamptz NOT NULL)"
        )
        for statement in migration.statements:
            link.execute(statement)
        link.execute(
            f"INSERT INTO {table} VALUES (%s, %s, now())",  # noqa: S608 - checked name
            (migration.version, migration.compatible_from),
        )


def read_version(link: DeadlineConnection, name: str) -> schema.SchemaVersion:
    """The version of the tables in this schema; none, if there are no tables."""
    # From the catalogue tables: to_regclass reads a cache, which is not refreshed by waiting for
    # the lock under which another process creates the table.
    exists = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'migration'"
    if link.execute(exists, (name,)).fetchone() is None:
        return schema.SchemaVersion()
    query = f'SELECT version, compatible_from FROM "{name}".migration'  # noqa: S608 - checked name
    return schema.SchemaVersion.of(link.execute(query).fetchall())
