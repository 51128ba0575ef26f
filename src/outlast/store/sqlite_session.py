"""One operation on the two connections of a process to its SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..ops.statement import Begin, Step, Together
from .sqlite_files import run
from .statements import Query

if TYPE_CHECKING:
    from .sqlite import SqliteStore


class SqliteSession:
    """Reads go to the reader until something is written or BEGIN is said."""

    def __init__(self, store: SqliteStore, queries: dict[str, Query]) -> None:
        self.store = store
        self.queries = queries
        self.began = False

    def __enter__(self) -> SqliteSession:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.began:
            if kind is None:
                self._commit()
            else:
                self._roll_back()

    def answer(self, step: Step) -> Any:
        if isinstance(step, Begin):
            self._begin()
            return None
        statements = step if isinstance(step, Together) else (step,)
        alone = not self.began and not all(self.queries[s.name].reads for s in statements)
        if alone:
            self._begin()
        connection = self.store.writer if self.began else self.store.reader
        answers = [run(connection, self.queries[s.name], s) for s in statements]
        if alone:
            self._commit()
        return answers if isinstance(step, Together) else answers[0]

    def _begin(self) -> None:
        if not self.began:
            self.store.writer.execute("BEGIN IMMEDIATE")
            self.began = True

    def _commit(self) -> None:
        try:
            self.store.writer.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        self.began = False
        self.store.committed()

    def _roll_back(self) -> None:
        self.began = False
        with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            self.store.writer.execute("ROLLBACK")
