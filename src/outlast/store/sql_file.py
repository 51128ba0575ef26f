"""The form of a file of SQL: sections, each a statement or a fragment.

    -- name: await_job
    -- One line, or more, on its purpose.
    -- postgres: why it differs
    SELECT state FROM ol.job WHERE id = ol.id(:id) FOR UPDATE
    -- sqlite: why it differs
    SELECT state FROM ol.job WHERE id = :id

SQL that both databases accept is written once, without those lines. `-- postgres only: why` marks a
statement that is not sent to SQLite and returns no rows there. In the head of a file, above its
first section, it applies to all of them. `-- fragment: name` is a piece of SQL that others include
as `ol.name`. Parameters are `:name`; `dialects` has the other words that are not SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .macros import MacroError, SqlSource

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_HEADING = r"-- (name|fragment|(?:postgres|sqlite)(?: only)?): *(.*)"


class Section:
    """A statement or a fragment, with its SQL for each database."""

    def __init__(self, kind: str, name: str, file: str, line: int, only: str | None) -> None:
        self.kind = kind  # "name" or "fragment"
        self.name = name
        self.file = file
        self.line = line
        self.only = only  # the only database that it is for
        self.purpose = ""
        self.texts: dict[str, tuple[int, list[str]]] = {}

    def add(self, dialect: str, number: int, line: str) -> None:
        """Add a line of SQL. A removed comment leaves an empty line, to keep line numbers."""
        first, lines = self.texts.setdefault(dialect, (number, []))
        lines += [""] * (number - first - len(lines))
        lines.append(line)

    def source(self, dialect: str) -> SqlSource | None:
        """The SQL for this database; None: nothing is sent."""
        if self.only not in (None, dialect):
            return None
        if (found := self.texts.get(dialect) or self.texts.get("")) is None:
            raise MacroError(f"{self.file}:{self.line}: {self.name} has no SQL for {dialect}")
        return SqlSource("\n".join(found[1]), self.file, found[0])


def sections(text: str, file: str) -> Iterator[Section]:
    """The sections of a file, in order."""
    section: Section | None = None
    only: str | None = None
    dialect = ""  # empty: SQL for both
    explained = False  # whether its purpose has been read
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("--"):
            if line and section is None:
                raise MacroError(f"{file}:{number}: SQL above the first `-- name:`")
            if line and section is not None:
                section.add(dialect, number, line)
                explained = True
            continue
        kind, rest = heading.groups() if (heading := re.match(_HEADING, line)) else ("", line[3:])
        if kind in ("name", "fragment"):
            if section is not None:
                yield section
            section, dialect, explained = Section(kind, rest, file, number, only), "", False
        elif section is None:  # the head of the file
            only = kind.removesuffix(" only") if kind.endswith(" only") else only
        elif kind:
            explained = True
            if kind.endswith(" only"):
                section.only = kind.removesuffix(" only")
            else:
                dialect = kind
        elif not explained:
            section.purpose = f"{section.purpose} {rest}".lstrip()
    if section is not None:
        yield section


def read(folder: Traversable) -> dict[str, Section]:
    """Every section of a folder's files, by name."""
    found: dict[str, Section] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        for section in sections(file.read_text("utf-8"), file.name):
            if section.name in found:
                raise MacroError(f"{file.name}:{section.line}: {section.name} is defined twice")
            found[section.name] = section
    return found
