"""Schema versions and migrations.

Migrations are `migrations/NNNN.<dialect>.sql`, applied in order, each in one transaction under a
lock, so an interrupted migration leaves nothing behind and the next run starts over. A fresh
install runs the same files, in one transaction. Each file has a line `-- compatible from: N`,
the oldest version that a process must know to work with its tables; it is recorded, so
that old and new processes run side by side during a deploy.

A file for large tables in use has steps instead. Each is committed and recorded on its own, so that
an interrupted upgrade continues where it was:

    -- change: add the colour of a job
    ALTER TABLE ol.job ADD COLUMN colour text;
    -- index: find jobs by colour
    CREATE INDEX CONCURRENTLY job_colour ON ol.job (colour);
    -- backfill: colour the jobs that exist
    UPDATE ol.job SET colour = 'blue' WHERE id IN (
        SELECT id FROM ol.job WHERE colour IS NULL LIMIT 5000);

A change waits half a second for its locks, and is retried; an index is built concurrently (on
SQLite, CONCURRENTLY is left out); a backfill is repeated until it changes no row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from ..model.errors import SchemaMismatch
from .dialects import POSTGRES, translate
from .macros import SqlSource, split

CHANGE, INDEX, BACKFILL = "change", "index", "backfill"

_STEP = re.compile(rf"^-- ({CHANGE}|{INDEX}|{BACKFILL}): +(.+)$", re.MULTILINE)
_COMPATIBLE_FROM = re.compile(r"^-- compatible from: (\d+)$", re.MULTILINE)

EARLY = (
    "the tables were created by a development version before the first release and cannot be"
    " upgraded: let that version finish its jobs, drop the tables (PostgreSQL: DROP SCHEMA …"
    " CASCADE; SQLite: remove the file), and run `outlast migrate`"
)


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """A part of a migration that is committed on its own."""

    kind: str
    purpose: str
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    version: int
    # A process that knows version n works with tables of this later version if that is at most n.
    compatible_from: int
    statements: tuple[str, ...]  # for new tables, or in one transaction
    steps: tuple[MigrationStep, ...] = ()  # for tables in use; none: in one transaction


class SchemaVersion(NamedTuple):
    """The schema version of a database."""

    version: int = 0  # 0: no tables
    compatible_from: int = 0
    early: bool = False  # version 1 from before the first release, compatible from 1

    @classmethod
    def of(cls, applied: Collection[tuple[int, int]]) -> SchemaVersion:
        """From the rows of `migration`."""
        if not applied:
            return cls()
        versions, compatible_from = zip(*applied, strict=True)
        return cls(max(versions), max(compatible_from), (1, 1) in applied)


@cache
def migrations(dialect: str, schema: str) -> tuple[SchemaMigration, ...]:
    folder = files(__package__).joinpath("migrations")
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(f".{dialect}.sql")),
        key=lambda file: file.name,
    )
    return tuple(_migration(file, dialect, schema) for file in found)


def _migration(file: Traversable, dialect: str, schema: str) -> SchemaMigration:
    source = SqlSource(file.read_text("utf-8"), f"migrations/{file.name}")
    if (head := _COMPATIBLE_FROM.search(source.text)) is None:
        source.fail(0, "a line `-- compatible from: N` is missing")
    steps = tuple(_steps(source, dialect, schema))
    whole = tuple(blocking(one) for one in split(translate(source, dialect, schema)))
    return SchemaMigration(int(file.name[:4]), int(head[1]), whole, steps)


def _steps(source: SqlSource, dialect: str, schema: str) -> Iterator[MigrationStep]:
    """The steps of a file, in order; none, if it is one transaction."""
    heads = list(_STEP.finditer(source.text))
    starts = [*(head.start() for head in heads), len(source.text)]
    for head, end in zip(heads, starts[1:], strict=True):
        part = SqlSource(source.text[head.end() : end], source.file)
        statements = split(translate(part, dialect, schema))
        if head[1] != CHANGE and len(statements) != 1:
            source.fail(head.start(), f"a step of the kind {head[1]} has one statement")
        yield MigrationStep(head[1], head[2], statements)


def blocking(statement: str) -> str:
    """The same index, built within a transaction."""
    return re.sub(r"\bINDEX CONCURRENTLY\b", "INDEX", statement)


def pending(
    known: tuple[SchemaMigration, ...], found: SchemaVersion
) -> tuple[SchemaMigration, ...]:
    """The migrations that an upgrade of these tables would apply."""
    if found.early:
        raise SchemaMismatch(reason=EARLY)
    return tuple(migration for migration in known if migration.version > found.version)


def next_step(
    known: tuple[SchemaMigration, ...], found: SchemaVersion
) -> tuple[SchemaMigration, ...]:
    """The migrations to apply in one transaction: one version, or all of them if there are no
    tables yet, so that no process sees a partial install."""
    later = pending(known, found)
    return later[:1] if found.version else later


def latest() -> int:
    return migrations(POSTGRES, "outlast")[-1].version


def check(found: SchemaVersion) -> None:
    """Refuse tables that this release cannot work with, and advise."""
    known = latest()
    if found.early:
        raise SchemaMismatch(reason=EARLY)
    if found.version < known:
        raise SchemaMismatch(
            reason=f"the tables are at version {found.version} and this release needs {known}:"
            " run `outlast migrate` (workers may keep running)"
        )
    if found.compatible_from > known:
        raise SchemaMismatch(
            reason=f"the tables are at version {found.version}, which needs a release that knows"
            f" version {found.compatible_from}; this one knows {known}: upgrade outlast here"
        )
