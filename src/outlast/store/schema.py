"""Schema versions and migrations.

Migrations are `migrations/NNNN.<dialect>.sql`, applied in order, each in one transaction under a
lock, so an interrupted migration leaves nothing behind and the next run starts over. A fresh
install runs the same files, in one transaction. Each file has a line `-- compatible from: N`,
the oldest version that a process must know to work with its tables; it is recorded, so
that old and new processes run side by side during a deploy.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import readers as _readers  # noqa: F401 - not later, beside a fork
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from ..model.errors import SchemaMismatch
from .dialects import POSTGRES, translate
from .macros import SqlSource, split

_COMPATIBLE_FROM = re.compile(r"^-- compatible from: (\d+)$", re.MULTILINE)

EARLY = (
    "the tables were created by a development version before the first release and cannot be"
    " upgraded: let that version finish its jobs, drop the tables (PostgreSQL: DROP SCHEMA …"
    " CASCADE; SQLite: remove the file), and run `outlast migrate`"
)


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    # A process that knows version n works with tables of this later version if that is at most n.
    compatible_from: int
    statements: tuple[str, ...]


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
def migrations(dialect: str, schema: str) -> tuple[Migration, ...]:
    folder = files(__package__).joinpath("migrations")
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(f".{dialect}.sql")),
        key=lambda file: file.name,
    )
    return tuple(_migration(file, dialect, schema) for file in found)


def _migration(file: Traversable, dialect: str, schema: str) -> Migration:
    source = SqlSource(file.read_text("utf-8"), f"migrations/{file.name}")
    if (head := _COMPATIBLE_FROM.search(source.text)) is None:
        source.fail(0, "a line `-- compatible from: N` is missing")
    return Migration(int(file.name[:4]), int(head[1]), split(translate(source, dialect, schema)))


def next_step(known: tuple[Migration, ...], found: SchemaVersion) -> tuple[Migration, ...]:
    """The migrations to apply in one transaction: one version, or all of them if there are no
    tables yet, so that no process sees a partial install."""
    if found.early:
        raise SchemaMismatch(reason=EARLY)
    later = tuple(migration for migration in known if migration.version > found.version)
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
