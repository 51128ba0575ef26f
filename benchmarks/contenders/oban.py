"""Oban for Python: PostgreSQL, psycopg, LISTEN/NOTIFY, finished jobs are kept."""

import asyncio

from oban import Oban, worker
from oban.schema import install

NAME = "oban"
STORES = ["postgres"]
REQUIRES = ["oban", "psycopg[binary]", "uvloop"]
PYTHON = "3.12"
IMPORTS = "oban"
CAN = ["async", "many", "within", "later", "slow", "wake"]
DURABLE = True
DURABILITY = (
    "Logged tables, finished jobs are kept. Jobs of a dead worker are found by age, which also runs"
    " long jobs again that are healthy."
)


@worker(queue="default")
class Noop:
    async def process(self, job):
        Contender.seen(job.args["payload"])


@worker(queue="default")
class Slow:
    async def process(self, job):
        Contender.seen("x")
        await asyncio.sleep(job.args["seconds"])


class Contender:
    def __init__(self, place, seen):
        Contender.seen = seen  # workers are found by their names: they have nothing else to ask
        self.place, self.oban = place, None

    async def linked(self):
        if self.oban is None:
            self.pool = await Oban.create_pool(dsn=self.place.url, max_size=20)
            self.oban = Oban(pool=self.pool)
        return self.oban

    async def prepare(self):
        await self.linked()
        await install(self.pool)
        async with self.pool.connection() as link:
            await link.execute("CREATE TABLE business (name text NOT NULL)")

    async def enqueue(self, payload):
        await (await self.linked()).enqueue(Noop.new({"payload": payload}))

    async def enqueue_many(self, payloads):
        await (await self.linked()).enqueue_many(Noop.new({"payload": p}) for p in payloads)

    async def enqueue_within(self, payload):
        oban = await self.linked()
        async with self.pool.connection() as link, link.transaction():
            await link.execute("INSERT INTO business VALUES ('sold')")
            await oban.enqueue(Noop.new({"payload": payload}), conn=link)

    async def enqueue_later(self, payloads):
        # Its highest priority is 0, which all the others have too.
        jobs = [Noop.new({"payload": p}, schedule_in=86400) for p in payloads]
        await (await self.linked()).enqueue_many(jobs)

    async def enqueue_slow(self, payloads, seconds):
        await (await self.linked()).enqueue_many(Slow.new({"seconds": seconds}) for _ in payloads)

    async def left(self):
        await self.linked()
        query = "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing')"
        async with self.pool.connection() as link:
            (left,) = await (await link.execute(query)).fetchone()
        return left

    async def work(self):
        await self.linked()
        async with Oban(pool=self.pool, queues={"default": self.place.concurrency}):
            await asyncio.Event().wait()
