"""The job table, straight: what is measured must not be what measures, and the bare database does
its work in the same table as Outlast, with the same columns, rules and indexes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from outlast.model.ids import new_job_id
from outlast.store.address import parse
from outlast.store.dialects import SQLITE, table, translate

LATELY = 43_200.0  # seconds within which kept jobs have ended


class Table:
    def __init__(self, url: str, schema: str) -> None:
        self._address = address = parse(url, schema)
        self.is_sqlite = address.dialect == SQLITE
        self.path = Path(address.path or "")
        self.sql = _statements(address.dialect, address.schema)
        self._reading: Any = None

    def connect(self) -> Any:
        """A connection that commits by itself, durably."""
        if self.is_sqlite:
            connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            return connection
        import psycopg

        return psycopg.connect(self._address.url, autocommit=True)

    def left(self) -> int:
        if self._reading is None:
            self._reading = self.connect()
        (left,) = self._reading.execute(self.sql["left"]).fetchone()
        return int(left)

    def fill(self, n: int) -> None:
        """So many finished jobs, kept. They ended over some hours: all of them at once would be
        counted at once too, by whoever counts what happened lately."""
        with closing(self.connect()) as connection:
            if not self.is_sqlite:
                connection.execute(self.sql["fill"], {"n": n})
                connection.execute(self.sql["vacuum"])
                return
            with written(connection):
                rows = ({"id": new_job_id(), "ago": LATELY * (1 - i / n)} for i in range(n))
                connection.executemany(self.sql["fill"], rows)

    def add_business(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute(self.sql["add_business"])

    def do_business(self, connection: Any) -> None:
        connection.execute(self.sql["do_business"])


@contextmanager
def written(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that writes."""
    connection.execute("BEGIN IMMEDIATE")
    yield  # what fails here ends the process, and takes the transaction with it
    connection.execute("COMMIT")


def _statements(dialect: str, schema: str) -> dict[str, Any]:
    """By name, in the words of each database and its driver."""
    text = files(__package__).joinpath("sql", f"{dialect}.sql").read_text("utf-8")
    business = f"{table('job', dialect, schema).removesuffix('job')}business"
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.M)
    return {
        name: translate(
            re.sub(r"^--.*\n", "", body, flags=re.M).replace("ol.business", business),
            dialect,
            schema,
        )
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
