"""The tables and their versions.

Migrations are `migrations/NNNN.<dialect>.sql`, applied in order, each in one transaction under a
lock, so a migration that dies midway leaves nothing behind and the next one starts over. A fresh
install runs the same files, in one transaction. Each applied version records the oldest release
schema that can still work with it, so that old and new processes run side by side during a deploy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..model.errors import SchemaMismatch
from .statements import POSTGRES, translate

# A process that knows version n works with tables of a later version m if compatible_from(m) ≤ n.
COMPATIBLE_FROM = {
    1: 1,
    2: 2,  # a process of version 1 would not tell followers
    3: 2,
    4: 2,
    5: 2,
    6: 2,
    7: 2,
    8: 2,
    9: 2,
    10: 2,
}


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    statements: tuple[str, ...]


@cache
def migrations(dialect: str, schema: str) -> tuple[Migration, ...]:
    folder = files(__package__).joinpath("migrations")
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(f".{dialect}.sql")),
        key=lambda file: file.name,
    )
    return tuple(
        Migration(int(file.name[:4]), _split(translate(file.read_text("utf-8"), dialect, schema)))
        for file in found
    )


def next_step(known: tuple[Migration, ...], found: int) -> tuple[Migration, ...]:
    """What to apply in one transaction to tables of the version found: one version, or all of them
    where there are no tables yet, so that nobody who comes by sees a new install half done."""
    later = tuple(migration for migration in known if migration.version > found)
    return later[:1] if found else later


def latest() -> int:
    return migrations(POSTGRES, "outlast")[-1].version


def check(found: int, compatible_from: int) -> None:
    """Refuse tables that this release cannot work with, and say what to do."""
    known = latest()
    if found < known:
        raise SchemaMismatch(
            reason=f"the tables are at version {found} and this release needs {known}:"
            " run `outlast migrate` (workers may go on meanwhile)"
        )
    if compatible_from > known:
        raise SchemaMismatch(
            reason=f"the tables are at version {found}, which needs a release that knows version"
            f" {compatible_from}; this one knows {known}: upgrade outlast here"
        )


def _split(text: str) -> tuple[str, ...]:
    """Single statements. Ours hold no semicolon inside."""
    text = re.sub(r"--.*$", "", text, flags=re.M)
    return tuple(part.strip() for part in text.split(";") if part.strip())
