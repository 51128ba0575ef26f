"""One operation on the two connections of a process to its SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...model.errors import StoreBusy
from ...ops.operation import Begin, BulkInsert, Pipeline, Rows, Statement, Step
from ..statements import Query
from .connection import decode_blob, run

if TYPE_CHECKING:
    from .store import SqliteStore

INTERRUPTED = (
    "this thread is in the middle of another transaction, which a signal handler has interrupted:"
    " let the handler wake a thread, and make the call there"
)


class SqliteSession:
    """Reads use the reader until the first write or BEGIN."""

    def __init__(self, store: SqliteStore, queries: dict[str, Query]) -> None:
        self.store = store
        self.queries = queries
        self.began = False

    def __enter__(self) -> SqliteSession:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.began:
            if kind is None:
                self._commit()
            else:
                self._roll_back()

    def execute_step(self, step: Step) -> object:
        if isinstance(step, Begin):
            self._begin()
            return None
        if isinstance(step, BulkInsert):
            self._insert_many(step)
            return None
        if not isinstance(step, Pipeline):
            return self._execute((step,))[0]
        return self._execute(step)

    def _execute(self, statements: Sequence[Statement]) -> list[Rows]:
        queries = [self.queries[statement.name] for statement in statements]
        alone = not (self.began or all(query.reads for query in queries))
        if alone:
            self._begin()
        connection = self.store.writer if self.began else self.store.reader
        answers = [self._query(connection, *each) for each in zip(queries, statements, strict=True)]
        if alone:
            self._commit()
        return answers

    def _insert_many(self, step: BulkInsert) -> None:
        assert self.began, "a bulk insert is part of a transaction"
        text = self.queries[step.name].for_driver(lambda _: "?")
        for alike, rows in step.runs:
            self.store.writer.executemany(text, ((id, args, *alike) for id, args in rows))

    @staticmethod
    def _query(connection: sqlite3.Connection, query: Query, statement: Statement) -> Rows:
        """Run a statement. A BLOB in a text column, which only another program can have written, is
        read as text."""
        rows = run(connection, query, statement) if query.sql else []
        if query.reads and any(bytes in map(type, row) for row in rows):
            return [tuple(decode_blob(value) for value in row) for row in rows]
        return rows

    def _begin(self) -> None:
        if not self.began:
            if self.store.writer.in_transaction:
                raise StoreBusy(reason=INTERRUPTED)
            self.store.writer.execute("BEGIN IMMEDIATE")
            self.began = True

    def _commit(self) -> None:
        try:
            self.store.writer.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        self.began = False
        self.store.committed(self.store.writer)

    def _roll_back(self) -> None:
        self.began = False
        with suppress(sqlite3.Error):  # SQLite may have rolled back already
            self.store.writer.execute("ROLLBACK")
