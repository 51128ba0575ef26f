"""Rows put straight into a database: whatever a table may hold, a page has to bear."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import UUID

from outlast import Outlast
from tests.store.jobs import table
from tests.support import Database

FINAL = {"succeeded", "dead", "cancelled"}


class Rows:
    """Inserts rows of a SQLite database; ids and moments come in the order in which it is told."""

    def __init__(self, connection: Any, database: Database) -> None:
        self._connection = connection
        self._database = database
        self._numbers = count(1)
        self.now = time.time()

    def id(self, ago: float = 0.0) -> str:
        """Like those of real jobs: they begin with the time, and end in what tells them apart."""
        number, millis = next(self._numbers), int((self.now - ago) * 1000)
        mixed = number * 0x9E3779B97F4A7C15 % (1 << 48)
        return str(UUID(int=(millis << 80) | (7 << 76) | (number << 64) | (2 << 62) | mixed))

    def insert(self, name: str, /, **row: Any) -> None:
        said = {key: json.dumps(value) if isinstance(value, dict | list) else value
                for key, value in row.items()}  # fmt: skip
        columns, marks = ", ".join(said), ", ".join("?" * len(said))
        self._connection.execute(
            f"INSERT INTO {table(self._database, name)} ({columns}) VALUES ({marks})",
            list(said.values()),
        )

    def job(self, state: str = "ready", ago: float = 60.0, **said: Any) -> str:
        """A job that was enqueued so long ago, with all that its state asks for."""
        created = self.now - ago
        row: dict[str, Any] = {
            "id": self.id(ago), "tenant": "default", "queue": "default", "task": "work", "args": {},
            "state": state, "priority": 0, "run_at": created, "max_attempts": 3, "max_crashes": 3,
            "created_at": created,
        }  # fmt: skip
        if state in FINAL | {"running"}:
            row |= {"attempt": 1, "fence": 1, "started_at": created + ago / 4}
        if state in FINAL:
            row |= {"finished_at": created + ago / 2}
        if state == "running":
            row |= {"worker": "worker-1", "lease_until": self.now + 3600}
        if state == "waiting":
            row |= {"waits_for": 1}
        if state == "scheduled":
            row |= {"run_at": self.now + ago}
        row |= said
        self.insert("job", **row)
        return str(row["id"])

    def attempt(self, job: str, number: int, began: float, took: float, **said: Any) -> None:
        row = {"job": job, "fence": number, "attempt": number, "outcome": "failed",
               "started_at": self.now - began, "finished_at": self.now - began + took}  # fmt: skip
        self.insert("attempt", **(row | said))

    def event(self, job: str | None, kind: str, data: Any, ago: float = 5.0, **said: Any) -> None:
        self.insert("event", job=job, kind=kind, data=json.dumps(data), at=self.now - ago, **said)

    def worker(self, id: str, **said: Any) -> None:
        row: dict[str, Any] = {
            "id": id, "host": "host-1", "pid": 4242, "queues": None, "tasks": ["work"],
            "concurrency": 8, "running": 1, "state": "working", "version": "0.1.0",
            "lease": 3600.0, "started_at": self.now - 4000, "seen_at": self.now - 2,
        }  # fmt: skip
        self.insert("worker", **(row | said))


@contextmanager
def filling(database: Database) -> Iterator[Rows]:
    with Outlast(database.url) as ol:
        ol.migrate()
    with database.connect() as connection:
        connection.execute("BEGIN")
        yield Rows(connection, database)
        connection.execute("COMMIT")
