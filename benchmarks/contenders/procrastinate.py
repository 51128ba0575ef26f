"""Procrastinate: PostgreSQL, psycopg, LISTEN/NOTIFY, finished jobs are kept."""

import asyncio
from datetime import UTC, datetime, timedelta

from procrastinate import App, PsycopgConnector
from psycopg import AsyncConnection

NAME = "procrastinate"
STORES = ["postgres"]
REQUIRES = ["procrastinate", "psycopg[binary]", "uvloop"]
IMPORTS = "procrastinate"
HELP = ["-m", "procrastinate", "worker", "--help"]
CAN = ["async", "sync", "many", "within", "later", "slow", "wake"]
SHARE = 0.25
DURABLE = True
DURABILITY = (
    "Logged tables, finished jobs are kept. A job whose worker died stays running until somebody"
    " asks for stalled jobs: nothing does so by default."
)

SETTINGS = "concurrency at most 30, which is its best; a pool of 20"

MOST = 30


class Contender:
    def __init__(self, place, seen):
        self.place, self.caller = place, None
        self.app = App(connector=PsycopgConnector(conninfo=place.url, max_size=20))
        self.opened = False
        if place.handler == "sync":

            def noop(payload):
                seen(payload)

        else:

            async def noop(payload):
                seen(payload)

        async def slow(seconds):
            seen("x")
            await asyncio.sleep(seconds)

        self.noop = self.app.task(name="noop")(noop)
        self.slow = self.app.task(name="slow")(slow)

    async def linked(self):
        if not self.opened:
            await self.app.open_async()
            self.opened = True

    async def prepare(self):
        await self.linked()
        await self.app.schema_manager.apply_schema_async()
        async with await AsyncConnection.connect(self.place.url) as link:
            await link.execute("CREATE TABLE business (name text NOT NULL)")

    async def enqueue(self, payload):
        await self.linked()
        await self.noop.defer_async(payload=payload)

    async def enqueue_many(self, payloads):
        await self.linked()
        await self.noop.batch_defer_async(*({"payload": payload} for payload in payloads))

    async def enqueue_within(self, payload):
        await self.linked()
        if self.caller is None:
            self.caller = await AsyncConnection.connect(self.place.url)
        async with self.caller.transaction():
            await self.caller.execute("INSERT INTO business VALUES ('sold')")
            await self.noop.configure(connection=self.caller).defer_async(payload=payload)

    async def enqueue_later(self, payloads):
        await self.linked()
        tomorrow = self.noop.configure(
            schedule_at=datetime.now(UTC) + timedelta(days=1), priority=50
        )
        await tomorrow.batch_defer_async(*({"payload": payload} for payload in payloads))

    async def enqueue_slow(self, payloads, seconds):
        await self.linked()
        await self.slow.batch_defer_async(*({"seconds": seconds} for _ in payloads))

    async def left(self):
        await self.linked()
        (row,) = await self.app.connector.execute_query_all_async(
            "SELECT count(*) AS n FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        )
        return row["n"]

    async def work(self):
        await self.linked()
        await self.app.run_worker_async(
            concurrency=min(self.place.concurrency, MOST), install_signal_handlers=False
        )
