"""Outlast's tables in a Django migration."""

from __future__ import annotations

from typing import Any

from .conf import read_settings
from .store import DjangoStore


def create_tables(apps: object, schema_editor: Any) -> None:
    """Migrate the tables to this release, in the migration's transaction. Does nothing on databases
    other than the one of the jobs, or if the tables are up to date."""
    conf = read_settings()
    if schema_editor.connection.alias == conf.alias:
        DjangoStore(conf.alias, conf.schema, conf.store_settings).migrate()
