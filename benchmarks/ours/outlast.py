"""Outlast, as anybody uses it: tasks, `enqueue`, and a worker process with its defaults."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from benchmarks.table import Table
from outlast import Outlast, group

if TYPE_CHECKING:
    from benchmarks.serve import Place, Seen

NAME = "outlast"
KIND = "outlast"
STORES = ["postgres", "sqlite"]
REQUIRES = ["outlast", "psycopg", "asyncpg", "uvloop"]
IMPORTS = "outlast"
HELP = ["-m", "outlast", "worker", "--help"]
CAN = ["async", "sync", "many", "within", "later", "slow", "fill", "wake", "group", "lanes"]
DURABLE = True
DURABILITY = (
    "A job is synced to disk when enqueue returns; it stays in its row until its outcome is synced;"
    " only the claim that holds it can finish it; results are kept."
)


class Contender:
    def __init__(self, place: Place, seen: Seen) -> None:
        self._place = place
        self._ol = ol = Outlast(place.url, schema=place.schema)
        self._table = Table(place.url, place.schema)
        self._caller: Any = None

        async def noop(payload: str) -> None:
            seen(payload)

        def noop_in_thread(payload: str) -> None:
            seen(payload)

        async def slow(payload: str, seconds: float) -> None:
            seen(payload)
            await asyncio.sleep(seconds)

        def slow_in_thread(payload: str, seconds: float) -> None:
            seen(payload)
            time.sleep(seconds)

        sync = place.handler == "sync"
        self._noop: Any = ol.task(name="noop")(noop_in_thread if sync else noop)
        self._slow: Any = ol.task(name="slow")(slow_in_thread if sync else slow)

    def prepare(self) -> None:
        self._ol.migrate()
        self._table.add_business()

    def enqueue(self, payload: str) -> None:
        self._noop.enqueue(payload=payload)

    def enqueue_many(self, payloads: list[str]) -> None:
        self._ol.enqueue(*(self._noop.job(payload=payload) for payload in payloads))

    def enqueue_in_lanes(self, payloads: list[str]) -> None:
        self._ol.limit("default", lane_running=2)
        self._enqueue_in(1000, payloads)

    def enqueue_in_one_lane(self, payloads: list[str]) -> None:
        self._ol.limit("default", lane_running=1000)
        self._enqueue_in(1, payloads)

    def _enqueue_in(self, lanes: int, payloads: list[str]) -> None:
        tasks = [self._noop.using(lane=f"lane-{n}") for n in range(lanes)]
        self._ol.enqueue(
            *(tasks[n % lanes].job(payload=payload) for n, payload in enumerate(payloads))
        )

    def enqueue_within(self, payload: str) -> None:
        if self._caller is None:
            self._caller = self._connect()
        self._table.do_business(self._caller)
        self._noop.using(conn=self._caller).enqueue(payload=payload)
        self._caller.commit()

    def _connect(self) -> Any:
        if self._place.store == "sqlite":
            connection = sqlite3.connect(self._table.path, timeout=30)
            connection.execute("PRAGMA synchronous = FULL")
            return connection
        import psycopg

        return psycopg.connect(self._place.url)

    def enqueue_later(self, payloads: list[str]) -> None:
        later = self._noop.using(delay=86400, priority=50)
        self._ol.enqueue(*(later.job(payload=payload) for payload in payloads))

    def enqueue_slow(self, payloads: list[str], seconds: float) -> None:
        self._ol.enqueue(*(self._slow.job(payload=p, seconds=seconds) for p in payloads))

    def enqueue_group(self, payloads: list[str]) -> None:
        jobs = [self._noop.job(payload=payload) for payload in payloads]
        self._ol.enqueue(group(*jobs).then(self._noop.job(payload="x")))

    def fill(self, n: int) -> None:
        self._table.fill(n)

    def left(self) -> int:
        return self._table.left()

    def work(self) -> None:
        self._ol.worker(concurrency=self._place.concurrency).run()
