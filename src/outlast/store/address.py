"""Where jobs are kept: the URL that people write, taken apart and checked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..model.errors import InvalidSetting
from .statements import POSTGRES, SQLITE

DEFAULT_URL = "sqlite:///outlast.db"


@dataclass(frozen=True, slots=True)
class Address:
    """A database and the schema in it (on SQLite: the prefix of our tables)."""

    dialect: str
    url: str
    schema: str
    path: Path | None = None  # SQLite

    def __str__(self) -> str:
        """Safe to print: no password, no parameters."""
        if self.dialect == SQLITE:
            return f"sqlite:///{self.path}"
        parts = urlsplit(self.url)
        user = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
        return f"postgresql://{user}{parts.hostname or ''}{port}{parts.path}"

    __repr__ = __str__


def parse(url: str | None = None, schema: str = "outlast") -> Address:
    url = url or os.environ.get("OUTLAST_URL") or DEFAULT_URL
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema):
        raise InvalidSetting(
            field="schema",
            reason=f"must be 1 to 48 of a–z, 0–9 and _, not starting with a digit; not {schema!r}",
        )
    scheme = url.partition(":")[0].lower()
    if scheme in {"postgresql", "postgres"}:
        return Address(POSTGRES, url, schema)
    if scheme == "sqlite":
        return Address(SQLITE, url, schema, _path(url))
    raise InvalidSetting(
        field="url",
        reason="must be sqlite:///file.db (or sqlite:////absolute/file.db) or postgresql://…;"
        f" it starts with {scheme[:20]!r}",
    )


def _path(url: str) -> Path:
    name = unquote(url.partition(":")[2]).partition("?")[0]
    if not name.startswith("///") or name in {"///", "///:memory:"}:
        raise InvalidSetting(
            field="url",
            reason="must name a file: sqlite:///jobs.db beside the working directory, or"
            " sqlite:////absolute/jobs.db; jobs in memory would not outlast anything",
        )
    return Path(name[3:]).absolute()
