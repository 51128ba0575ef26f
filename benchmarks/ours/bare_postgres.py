"""The bare database: the same work in the same table, by the driver in a tight loop.

What any job system must do durably, and nothing else: a claim is committed before its jobs are
finished, a finish counts only under the claim's fence, results are kept. The finish of one batch
and the claim of the next are one statement, one round trip and one commit.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from benchmarks.table import Table
from outlast import Outlast
from outlast.model.ids import new_job_id

if TYPE_CHECKING:
    from benchmarks.serve import Place, Seen

NAME = "bare"
KIND = "bare"
STORES = ["postgres"]
REQUIRES = ["psycopg", "asyncpg", "uvloop"]
CAN = ["async", "sync", "many", "within", "later", "fill"]
DURABLE = True
DURABILITY = "As Outlast: each commit is synced to disk, the fence is checked, results are kept."

Turn = Callable[..., Awaitable[list[Any]]]
PARAMETERS = ["ids", "fences", "run_at", "id", "limit"]
START = (datetime(2000, 1, 1, tzinfo=UTC), UUID(int=0))
AGAIN = 1.0  # seconds between scans from the start


class Contender:
    def __init__(self, place: Place, seen: Seen) -> None:
        self._place = place
        self._seen = seen
        self._table = Table(place.url, place.schema)
        self._sql = self._table.sql
        self._linked: psycopg.Connection[Any] | None = None

    @property
    def _link(self) -> psycopg.Connection[Any]:
        if self._linked is None:
            self._linked = self._table.connect()
        return self._linked

    def prepare(self) -> None:
        with Outlast(self._place.url, schema=self._place.schema) as ol:
            ol.migrate()
        self._table.add_business()

    def enqueue(self, payload: str) -> None:
        self._link.execute(self._sql["insert"], _row(payload), prepare=True)

    def enqueue_many(self, payloads: list[str]) -> None:
        """Lines of text, made by hand: half of the driver's own cost for each row."""
        with self._link.cursor().copy(self._sql["copy"]) as copy:
            copy.write("".join(map(_line, payloads)))

    def enqueue_within(self, payload: str) -> None:
        with self._link.transaction():
            self._table.do_business(self._link)
            self._link.execute(self._sql["insert"], _row(payload), prepare=True)

    def enqueue_later(self, payloads: list[str]) -> None:
        self._link.cursor().executemany(self._sql["insert_later"], map(_row, payloads))

    def fill(self, n: int) -> None:
        self._table.fill(n)

    def left(self) -> int:
        return self._table.left()

    async def work(self) -> None:
        """The batch is what Outlast's worker has in flight. Scans begin at the smallest key of the
        last claim; once a second, and when nothing is found, at the start."""
        turn = await self._turning()
        held: list[Any] = []
        key, scan_at = START, 0.0
        while True:
            if whole := time.monotonic() >= scan_at:
                key, scan_at = START, time.monotonic() + AGAIN
            ids, fences = [row[1] for row in held], [row[2] for row in held]
            rows = await turn(ids, fences, *key, self._place.concurrency)
            assert rows[0][0] == len(held), "a claim was lost"
            held = [row for row in rows if row[1] is not None]
            if held:
                self._seen.batch(len(held))
                key = min((row[3], row[1]) for row in held)
            elif whole:
                await asyncio.sleep(0.005)
            else:
                scan_at = 0.0

    async def _turning(self) -> Turn:
        """By the driver that needs the least processor for it, if it is there."""
        try:
            import asyncpg
        except ImportError:
            cursor, statement = self._link.cursor(binary=True), self._sql["turn"]

            async def turn(*values: Any) -> list[Any]:
                given = dict(zip(PARAMETERS, values, strict=True))
                return cursor.execute(statement, given, prepare=True).fetchall()

            return turn
        link = await asyncpg.connect(self._place.url)
        statement = self._sql["turn"]
        for number, name in enumerate(PARAMETERS, 1):
            statement = statement.replace(f"%({name})s", f"${number}")
        made: Turn = (await link.prepare(statement)).fetch
        return made


def _line(payload: str) -> str:
    args = json.dumps({"payload": payload}).replace("\\", "\\\\")
    return f"{new_job_id()}\tdefault\tdefault\tnoop\t{args}\tready\t0\tnow\t5\t3\tnow\n"


def _row(payload: str) -> dict[str, str]:
    return {"id": new_job_id(), "args": json.dumps({"payload": payload})}
