"""Django without a project: just its connections."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tests.support import Database


def connection_for(database: Database) -> tuple[Any, Any]:
    """A database wrapper of this thread, and the proxy that applications import as `connection`."""
    from django.db import connections
    from django.db.utils import DEFAULT_DB_ALIAS
    from django.utils.connection import ConnectionProxy

    configure()
    connections.close_all()
    connections.settings = connections.configure_settings({DEFAULT_DB_ALIAS: _entry(database)})
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    return connections[DEFAULT_DB_ALIAS], ConnectionProxy(connections, DEFAULT_DB_ALIAS)


def configure() -> None:
    """Once in a process, whoever comes first."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()


def _entry(database: Database) -> dict[str, Any]:
    if database.is_sqlite:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(database.path)}
    parts = urlsplit(database.direct_url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
