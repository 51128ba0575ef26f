"""The address of a database: its URL, parsed and checked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ..model.errors import InvalidSetting
from ..model.safe_text import type_name
from .dialects import POSTGRES, SQLITE

DEFAULT_URL = "sqlite:///outlast.db"
DEFAULT_SCHEMA = "outlast"

# As libpq parses it: the user part ends at the first @ before any slash.
_POSTGRES_URL = re.compile(r"postgres(?:ql)?://(?:([^:@/]*)(?::[^@/]*)?@)?([^?]*)")


@dataclass(frozen=True, slots=True)
class Address:
    """A database and the schema in it (on SQLite: the prefix of its tables)."""

    dialect: str
    url: str
    schema: str
    path: Path | None = None  # SQLite

    def __str__(self) -> str:
        """Safe to print: no password, no parameters."""
        if self.dialect == SQLITE:
            return f"sqlite:///{self.path}"
        user, location = _postgres_parts(self.url)
        return f"postgresql://{user}@{location}" if user else f"postgresql://{location}"

    __repr__ = __str__


def parse(url: str | None = None, schema: str | None = None) -> Address:
    if url is not None and not isinstance(url, str):
        raise InvalidSetting(field="url", reason=f"must be text, not {type_name(url)}")
    url = url or os.environ.get("OUTLAST_URL") or DEFAULT_URL
    if schema is None:
        schema = os.environ.get("OUTLAST_SCHEMA") or DEFAULT_SCHEMA
    check_schema(schema)
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if scheme in {"postgresql", "postgres"}:
        if schema.startswith("pg_") or schema == "information_schema":
            raise InvalidSetting(field="schema", reason=f"{schema!r} is PostgreSQL's own")
        return Address(POSTGRES, _readable(scheme + colon + rest), schema)
    if scheme == "sqlite":
        return Address(SQLITE, url, schema, _path(url))
    plain = re.fullmatch(r"[a-z][a-z0-9+.-]{0,19}", scheme)
    raise InvalidSetting(
        field="url",
        reason="must be sqlite:///file.db (or sqlite:////absolute/file.db) or postgresql://…"
        + (f"; it starts with {scheme!r}" if plain else ""),
    )


def check_schema(schema: str) -> None:
    """Refuse a name that is unsafe in SQL: an identifier cannot be a parameter."""
    if not isinstance(schema, str) or not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema):
        raise InvalidSetting(
            field="schema",
            reason="must be 1 to 48 of a–z, 0–9 and _, not starting with a digit; not"
            f" {schema!r:.80}",
        )


def _readable(url: str) -> str:
    """A URL that libpq parses as intended; libpq's own errors would quote the password."""
    _, location = _postgres_parts(url)
    hosts = re.sub(r"\[[^]]*\]", "", location.partition("/")[0]).split(",")
    numbered = all(re.fullmatch(r"[^:]*(:\d*)?", host) for host in hosts)
    if "@" in location or not numbered or re.search(r"%(?![0-9a-fA-F]{2})", url):
        raise InvalidSetting(
            field="url",
            reason="must be postgresql://user:password@host:port/database, where"
            " names and passwords have %25 for %, %40 for @ and %2F for /",
        )
    try:
        decoded = unquote(url, errors="strict")
    except UnicodeDecodeError:
        decoded = "\0"
    if "\0" in decoded:
        raise InvalidSetting(
            field="url", reason="has an escape such as %FF that is not UTF-8 text, or U+0000"
        )
    return url


def _postgres_parts(url: str) -> tuple[str, str]:
    """The user and the location of the database, without secrets."""
    found = _POSTGRES_URL.match(url)
    if found is None:
        raise InvalidSetting(field="url", reason="must start with postgresql://")
    return found[1] or "", found[2]


def _path(url: str) -> Path:
    name = unquote(url.partition(":")[2].partition("?")[0])
    if "\0" in name:
        raise InvalidSetting(field="url", reason="must name a file, and no file name has U+0000")
    if not name.startswith("///") or name in {"///", "///:memory:"}:
        raise InvalidSetting(
            field="url",
            reason="must name a file: sqlite:///jobs.db beside the working directory, or"
            " sqlite:////absolute/jobs.db; jobs in memory would not outlast anything",
        )
    try:
        return Path(name[3:]).absolute()
    except FileNotFoundError:  # of os.getcwd()
        reason = "names a file beside the working directory, which no longer exists"
        raise InvalidSetting(field="url", reason=reason) from None
