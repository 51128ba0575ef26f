"""Stores: connections, dialects, SQL, migrations."""

from __future__ import annotations

from ..model.errors import Unsupported
from ..model.settings import StoreSettings
from .address import parse
from .base import OperationRunner, Store
from .dialects import POSTGRES

__all__ = ["OperationRunner", "Store", "open_store"]


def open_store(
    url: str | None = None, schema: str | None = None, settings: StoreSettings | None = None
) -> Store:
    """The store for a URL. It opens nothing before its first use."""
    address = parse(url, schema)
    settings = settings or StoreSettings.of()
    if address.dialect == POSTGRES:
        try:
            from .postgres.store import PostgresStore
        except ImportError as error:
            raise Unsupported(
                reason="PostgreSQL needs the extra: pip install 'outlast[postgres]'"
            ) from error
        return PostgresStore(address, settings)
    from .sqlite.store import SqliteStore

    return SqliteStore(address, settings)
