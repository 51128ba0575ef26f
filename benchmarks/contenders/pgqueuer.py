"""pgqueuer: PostgreSQL, asyncpg, LISTEN/NOTIFY."""

import asyncio
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

NAME = "pgqueuer"
STORES = ["postgres"]
REQUIRES = ["pgqueuer", "asyncpg", "uvloop"]
IMPORTS = "pgqueuer"
HELP = ["-m", "pgqueuer", "run", "--help"]
CAN = ["async", "many", "within", "later", "slow", "wake"]
DURABLE = True
DURABILITY = (
    "Logged tables. A finished job is deleted, a line in its log stays; no fence: a worker that was"
    " thought dead can still finish what another has taken."
)
SETTINGS = "batch_size = concurrency"


class Contender:
    def __init__(self, place, seen):
        self.place, self.seen, self.queries = place, seen, None

    async def linked(self):
        if self.queries is None:
            self.link = await asyncpg.connect(self.place.url)
            self.queries = Queries(AsyncpgDriver(self.link))
        return self.queries

    async def prepare(self):
        await (await self.linked()).install()
        await self.link.execute("CREATE TABLE business (name text NOT NULL)")

    async def enqueue(self, payload):
        await (await self.linked()).enqueue("noop", payload.encode(), 0)

    async def enqueue_many(self, payloads):
        n = len(payloads)
        bodies = [payload.encode() for payload in payloads]
        await (await self.linked()).enqueue(["noop"] * n, bodies, [0] * n)

    async def enqueue_within(self, payload):
        queries = await self.linked()
        async with self.link.transaction():
            await self.link.execute("INSERT INTO business VALUES ('sold')")
            await queries.enqueue("noop", payload.encode(), 0)

    async def enqueue_later(self, payloads):
        n = len(payloads)
        bodies, tomorrow = [payload.encode() for payload in payloads], [timedelta(days=1)] * n
        await (await self.linked()).enqueue(["noop"] * n, bodies, [50] * n, tomorrow)

    async def enqueue_slow(self, payloads, seconds):
        await (await self.linked()).enqueue(
            ["slow"] * len(payloads), [str(seconds).encode()] * len(payloads), [0] * len(payloads)
        )

    async def left(self):
        await self.linked()
        return await self.link.fetchval("SELECT count(*) FROM pgqueuer")

    async def work(self):
        app = PgQueuer.from_asyncpg_connection(await asyncpg.connect(self.place.url))

        @app.entrypoint("noop")
        async def noop(job):
            self.seen(job.payload.decode())

        @app.entrypoint("slow")
        async def slow(job):
            self.seen("x")
            await asyncio.sleep(float(job.payload))

        batch = self.place.concurrency
        # Its batches are claimed whatever is in flight, unless there is a limit, of at least two
        # of them: so where the number of jobs at once matters, a batch is half of it.
        if batch <= 10:
            await app.run(batch_size=batch // 2, max_concurrent_tasks=batch)
        else:
            await app.run(batch_size=batch)
