"""The SQL, by name, in the words of each database.

Statements live in `sql/*.sql`; `sql_file` says how these are written, and `dialects` which words in
them are translated. It is done once per process. Another package may have statements of its own, in
its own folder `sql`: their names begin with that package's, as in `outlast.verify:dump_jobs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from . import columns, sql_file
from .dialects import DialectNamespace
from .macros import expand

_SCHEMA = "\0"  # stands in for a schema's name; no text of SQL can hold it
_PARAMETER = re.compile(r"""'[^']*'|"[^"]*"|(?<![:\w]):([a-z_]+)\b""")


@dataclass(frozen=True, slots=True)
class Query:
    """One statement for one database, its tables named, its parameters still `:name`."""

    name: str
    purpose: str
    sql: str  # empty: this database has nothing to do
    parameters: tuple[str, ...]
    reads: bool

    @property
    def returns_rows(self) -> bool:
        """Whether rows come back."""
        return self.reads or self.sql.startswith("SELECT") or "RETURNING" in self.sql

    def for_driver(self, mark: Callable[[str], str], *, percent: str = "%") -> str:
        """The text with each parameter spelled for a driver."""
        text = self.sql.replace("%", percent)
        return _PARAMETER.sub(lambda found: mark(found[1]) if found[1] else found[0], text)


class Queries(dict[str, Query]):
    """Every statement of one database, by name. Those of other packages are read when needed."""

    def __init__(self, dialect: str, schema: str) -> None:
        self._dialect, self._schema = dialect, schema
        self.add(__package__)

    def add(self, package: str) -> None:
        for name, query in _translated(self._dialect, package).items():
            self[name] = replace(query, sql=query.sql.replace(_SCHEMA, self._schema))

    def __missing__(self, name: str) -> Query:
        package, colon, _ = name.partition(":")
        if colon and name in _translated(self._dialect, package):
            self.add(package)
            return self[name]
        raise KeyError(f"there is no statement {name!r}")


@cache
def queries(dialect: str, schema: str) -> Queries:
    return Queries(dialect, schema)


@cache
def _translated(dialect: str, package: str) -> dict[str, Query]:
    """A package's statements, for a schema that is yet to be named: that is the same for all."""
    sections = sql_file.read(files(package).joinpath("sql")).values()
    told = {section.name: section.source(dialect) for section in sections}
    fragments = {s.name: text for s in sections if s.kind == "fragment" and (text := told[s.name])}
    fragments |= columns.fragments()
    names = DialectNamespace(dialect, _SCHEMA, fragments)
    prefix = "" if package == __package__ else f"{package}:"
    translated = {}
    for section in sections:
        if section.kind == "name":
            source = told[section.name]
            sql = expand(source, names) if source else ""
            translated[prefix + section.name] = _query(prefix + section.name, section.purpose, sql)
    return translated


def _query(name: str, purpose: str, sql: str) -> Query:
    found = (match[1] for match in _PARAMETER.finditer(sql))
    parameters = tuple(dict.fromkeys(name for name in found if name))
    reads = not re.search(r"\b(INSERT|UPDATE|DELETE|pg_notify)\b", sql)
    return Query(name, purpose, sql, parameters, reads)
