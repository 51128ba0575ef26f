"""The URL of an entry of `DATABASES`, for a worker's own connections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from ...model.errors import Unsupported
from ...store.address import Address
from ...store.dialects import POSTGRES, SQLITE

DIALECTS = {"postgresql": POSTGRES, "sqlite": SQLITE}  # by Django's vendor

# Options of Django's backend and of psycopg.connect that are not parameters of libpq.
NOT_LIBPQ = frozenset(
    "assume_role context cursor_factory isolation_level pool prepare_threshold row_factory"
    " server_side_binding".split()
)


def database_url(alias: str) -> str:
    """The URL of a database of this project, for connections separate from Django's."""
    from django.db import connections

    if (reason := refusal(alias)) is not None:
        raise Unsupported(reason=reason)
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return _sqlite_url(alias, connection.settings_dict["NAME"])
    return _postgres_url(connection.settings_dict)


def refusal(alias: str) -> str | None:
    """The reason why this database cannot hold jobs; None: it can."""
    from django.db import connections

    if alias not in connections.settings:
        named = ", ".join(sorted(connections.settings))
        return f"OUTLAST['database'] names {alias!r}, but DATABASES has: {named}"
    connection = connections[alias]
    if connection.vendor not in DIALECTS:
        engine = connection.settings_dict["ENGINE"]
        return (
            f"DATABASES[{alias!r}] has the engine {engine}, but jobs are stored in PostgreSQL or"
            " SQLite: name another alias in OUTLAST['database']"
        )
    if connection.vendor == "postgresql" and not _has_psycopg3():
        return (
            f"DATABASES[{alias!r}] is used with psycopg2, but jobs need psycopg 3:"
            " pip install 'outlast[django,postgres]'"
        )
    return None


def locks_file(alias: str) -> bool:
    """Whether each transaction of this database locks its file for writing from the start."""
    from django.db import connections

    connection = connections[alias]
    options = connection.settings_dict.get("OPTIONS") or {}
    mode = str(options.get("transaction_mode") or "").upper()
    return connection.vendor == "sqlite" and mode in ("IMMEDIATE", "EXCLUSIVE")


def _has_psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return bool(is_psycopg3)


def address_of(alias: str, schema: str) -> Address:
    """The address for messages; a database in memory has no URL."""
    from django.db import connections

    if alias not in connections.settings:
        return Address(POSTGRES, "postgresql:///", schema)
    connection = connections[alias]
    if connection.vendor == "sqlite":
        name = str(connection.settings_dict["NAME"])
        return Address(SQLITE, f"sqlite:///{name}", schema, Path(name))
    return Address(POSTGRES, _postgres_url(connection.settings_dict), schema)


def _sqlite_url(alias: str, name: object) -> str:
    text = str(name)
    if not text or ":memory:" in text or text.startswith("file:"):
        raise Unsupported(
            reason=f"DATABASES[{alias!r}] is not a file ({text or 'it has no NAME'}), so a worker"
            " cannot open it: give it a path; in tests, use OutlastTestCase and self.drain()"
        )
    return "sqlite:///" + quote(str(Path(text).absolute()))


def _postgres_url(entry: Mapping[str, Any]) -> str:
    options = dict(entry.get("OPTIONS") or {})
    role = options.get("assume_role")
    query = {key: str(value) for key, value in options.items() if key not in NOT_LIBPQ}
    if role:
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        query["options"] = f"{query.get('options', '')} -c role={escaped}".strip()
    host, port = str(entry.get("HOST") or ""), str(entry.get("PORT") or "")
    server = ""
    if host.startswith(("/", "@")) or "," in host or "," in port:
        query |= {"host": host} | ({"port": port} if port else {})
    else:
        server = f"[{host}]" if ":" in host else quote(host, safe="")
        server += f":{port}" if port else ""
    user, password = entry.get("USER") or "", entry.get("PASSWORD") or ""
    login = quote(user, safe="")
    if password:
        login += ":" + quote(password, safe="")
    at = "@" if login else ""
    name = quote(str(entry.get("NAME") or ""), safe="")
    tail = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"postgresql://{login}{at}{server}/{name}{tail}"
