"""Outlast's tables in a migration of Django's."""

from __future__ import annotations

from typing import Any

from .conf import read_settings
from .store import DjangoStore


def create_tables(apps: object, schema_editor: Any) -> None:
    """Bring the tables up to this release, in the migration's transaction. Nothing happens on
    another database than the one of the jobs, nor where the tables are up to date."""
    conf = read_settings()
    if schema_editor.connection.alias == conf.alias:
        DjangoStore(conf.alias, conf.schema, conf.store_settings).migrate()
