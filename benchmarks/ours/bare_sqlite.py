"""The bare database: the same work in the same table, by the driver in a tight loop.

See bare_postgres.py. Here the finish of one batch and the claim of the next are one transaction.
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import TYPE_CHECKING

from benchmarks.table import Table, written
from outlast import Outlast
from outlast.model.ids import new_job_id

if TYPE_CHECKING:
    from benchmarks.serve import Place, Seen

NAME = "bare"
KIND = "bare"
STORES = ["sqlite"]
REQUIRES: list[str] = []
CAN = ["async", "sync", "many", "within", "later", "fill"]
DURABLE = True
DURABILITY = "As Outlast: WAL with synchronous=FULL, the fence is checked, results are kept."


class Contender:
    def __init__(self, place: Place, seen: Seen) -> None:
        self._place = place
        self._seen = seen
        self._table = Table(place.url, place.schema)
        self._sql = self._table.sql
        self._linked: sqlite3.Connection | None = None

    @property
    def _link(self) -> sqlite3.Connection:
        if self._linked is None:
            self._linked = self._table.connect()
        return self._linked

    def prepare(self) -> None:
        with Outlast(self._place.url, schema=self._place.schema) as ol:
            ol.migrate()
        self._table.add_business()

    def enqueue(self, payload: str) -> None:
        with written(self._link):
            self._link.execute(self._sql["insert"], _row(payload))

    def enqueue_many(self, payloads: list[str]) -> None:
        with written(self._link):
            self._link.executemany(self._sql["insert"], map(_row, payloads))

    def enqueue_within(self, payload: str) -> None:
        with written(self._link):
            self._table.do_business(self._link)
            self._link.execute(self._sql["insert"], _row(payload))

    def enqueue_later(self, payloads: list[str]) -> None:
        with written(self._link):
            self._link.executemany(self._sql["insert_later"], map(_row, payloads))

    def fill(self, n: int) -> None:
        self._table.fill(n)

    def left(self) -> int:
        return self._table.left()

    def work(self) -> None:
        """The batch is what Outlast's worker has in flight."""
        held: list[tuple[str, int, str]] = []
        link, claim, finish = self._link, self._sql["claim"], self._sql["finish"]
        limit = {"limit": self._place.concurrency}
        while True:
            with written(link):
                done = link.executemany(finish, [(id, fence) for id, fence, _ in held])
                assert not held or done.rowcount == len(held), "a claim was lost"
                held = link.execute(claim, limit).fetchall()
            if held:
                self._seen.batch(len(held))
            else:
                time.sleep(0.005)


def _row(payload: str) -> dict[str, str]:
    return {"id": new_job_id(), "args": json.dumps({"payload": payload})}
