"""A store for one test: a new SQLite file, or a new schema on a PostgreSQL server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ..model.errors import InvalidOption
from ..store.address import parse
from ..store.dialects import POSTGRES

if TYPE_CHECKING:
    from ..client.client import Outlast


class FreshStores:
    """Moves apps to stores of their own. Tables of SQLite files are created once and copied."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self._folder = folder
        self._url = url or None
        self._templates: dict[str, Path] = {}  # by the prefix of the tables
        if self._url and parse(self._url).dialect != POSTGRES:
            raise InvalidOption(
                option="outlast_url",
                reason="must be postgresql://…: without it, each test has its own SQLite file",
            )

    @contextmanager
    def lend(self, app: Outlast) -> Iterator[Outlast]:
        """The app on an empty store; afterwards it has its old store again, and the new one is
        deleted."""
        here = app.store.address
        try:
            with self._schema(app) if self._url else self._file(app):
                yield app
        finally:
            app.move(here.url, here.schema)

    @contextmanager
    def _file(self, app: Outlast) -> Iterator[None]:
        folder = self._folder / uuid4().hex
        folder.mkdir()
        schema = app.store.address.schema
        template = self._templates.get(schema)
        path = folder / "jobs.db"
        if template is None:
            self._templates[schema] = template = self._make(app, self._folder / f"{schema}.db")
        shutil.copyfile(template, path)
        path.chmod(0o600)
        app.move(f"sqlite:///{path}", schema)
        try:
            yield
        finally:
            app.close()
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _make(app: Outlast, path: Path) -> Path:
        """An empty database. Closing its last connection moves the write-ahead log into it."""
        app.move(f"sqlite:///{path}", app.store.address.schema)
        app.migrate()
        app.close()
        return path

    @contextmanager
    def _schema(self, app: Outlast) -> Iterator[None]:
        schema = f"outlast_test_{os.getpid()}_{uuid4().hex[:12]}"
        app.move(self._url, schema)
        try:
            app.migrate()
            yield
        finally:
            app.close()
            self._drop(schema)

    def _drop(self, schema: str) -> None:
        import psycopg
        from psycopg import sql

        assert self._url is not None
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE")
            connection.execute(drop.format(sql.Identifier(schema)))
