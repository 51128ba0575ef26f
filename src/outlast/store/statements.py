"""SQL statements by name, translated for each database.

Statements are in `sql/*.sql`; `sql_file` describes their format, and `dialects` the words in them
that are translated when a statement is first used. Another package may have its own statements in
its own folder `sql`: their names start with the package's, as in `outlast.verify:dump_jobs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from . import columns, sql_file
from .dialects import DialectNamespace
from .macros import SqlSource, expand

_SCHEMA = "\0"  # placeholder of the schema's name; SQL text cannot contain it
_PARAMETER = re.compile(r"""'[^']*'|"[^"]*"|(?<![:\w]):([a-z_]+)\b""")


@dataclass(frozen=True, slots=True)
class Query:
    """One statement for one database, with table names, and parameters still as `:name`."""

    name: str
    purpose: str
    sql: str  # empty: nothing is sent to this database
    parameters: tuple[str, ...]
    reads: bool

    @property
    def returns_rows(self) -> bool:
        """Whether it returns rows."""
        return self.reads or self.sql.startswith("SELECT") or "RETURNING" in self.sql

    def for_driver(self, mark: Callable[[str], str], *, percent: str = "%") -> str:
        """The text with parameters in a driver's syntax."""
        text = self.sql.replace("%", percent)
        return _PARAMETER.sub(lambda found: mark(found[1]) if found[1] else found[0], text)


class Queries(dict[str, Query]):
    """The statements of one database by name, each translated when it is first used: a process uses
    few of them. `all` has every one."""

    def __init__(self, dialect: str, schema: str) -> None:
        self._dialect, self._schema = dialect, schema

    def all(self, package: str = __package__) -> dict[str, Query]:
        """Every statement of a package."""
        return {name: self[name] for name in _sources(self._dialect, package)}

    def __missing__(self, name: str) -> Query:
        query = _translated(self._dialect, name)
        self[name] = replace(query, sql=query.sql.replace(_SCHEMA, self._schema))
        return self[name]


@cache
def queries(dialect: str, schema: str) -> Queries:
    return Queries(dialect, schema)


@cache
def _translated(dialect: str, name: str) -> Query:
    """A statement before the schema's name is filled in, shared by all schemas."""
    package, colon, _ = name.partition(":")
    package = package if colon else __package__
    if (source := _sources(dialect, package).get(name)) is None:
        raise KeyError(f"there is no statement {name!r}")
    # A namespace for each: it keeps the state of its expansion, and threads may run at once.
    names = DialectNamespace(dialect, _SCHEMA, source.fragments)
    return _query(name, source.purpose, expand(source.text, names) if source.text else "")


class _StatementSource(NamedTuple):
    text: SqlSource | None
    purpose: str
    fragments: dict[str, SqlSource]  # of its package


@cache
def _sources(dialect: str, package: str) -> dict[str, _StatementSource]:
    """A package's statements, untranslated."""
    sections = sql_file.read(files(package).joinpath("sql")).values()
    texts = {section.name: section.source(dialect) for section in sections}
    fragments = {s.name: text for s in sections if s.kind == "fragment" and (text := texts[s.name])}
    fragments |= columns.fragments()
    prefix = "" if package == __package__ else f"{package}:"
    return {
        prefix + section.name: _StatementSource(texts[section.name], section.purpose, fragments)
        for section in sections
        if section.kind == "name"
    }


def _query(name: str, purpose: str, sql: str) -> Query:
    found = (match[1] for match in _PARAMETER.finditer(sql))
    parameters = tuple(dict.fromkeys(name for name in found if name))
    reads = not re.search(r"\b(INSERT|UPDATE|DELETE|pg_notify)\b", sql)
    return Query(name, purpose, sql, parameters, reads)
