"""awa: PostgreSQL, a core in Rust, handlers in Python."""

import asyncio
from dataclasses import dataclass

from awa import AsyncClient

NAME = "awa"
STORES = ["postgres"]
REQUIRES = ["awa-pg", "asyncpg", "uvloop"]
IMPORTS = "awa"
HELP = ["-m", "awa", "--help"]
CAN = ["async", "many", "within", "slow", "wake"]
DURABLE = True
DURABILITY = (
    "Logged tables, append-only; finished jobs are kept for a while. Jobs of a dead worker are"
    " found by their heartbeats, after one to two minutes."
)
SETTINGS = "max_workers = 4 × concurrency, claim_batch_size 256, claimers 2; COPY in bulk"


@dataclass
class Noop:
    payload: str


@dataclass
class Slow:
    seconds: float


class Contender:
    def __init__(self, place, seen):
        self.place, self.seen, self.client = place, seen, None

    async def linked(self):
        if self.client is None:
            self.client = AsyncClient(self.place.url, max_connections=20)
        return self.client

    async def prepare(self):
        import asyncpg

        client = await self.linked()
        await client.migrate()
        await client.install_queue_storage()
        link = await asyncpg.connect(self.place.url)
        await link.execute("CREATE TABLE business (name text NOT NULL)")
        await link.close()

    async def enqueue(self, payload):
        await (await self.linked()).insert(Noop(payload), queue="bench")

    async def enqueue_many(self, payloads):
        await (await self.linked()).enqueue_many_copy(list(map(Noop, payloads)), queue="bench")

    async def enqueue_within(self, payload):
        async with await (await self.linked()).transaction() as transaction:
            await transaction.execute("INSERT INTO business VALUES ('sold')")
            await transaction.insert(Noop(payload), queue="bench")

    async def enqueue_slow(self, payloads, seconds):
        await (await self.linked()).enqueue_many_copy(
            [Slow(seconds)] * len(payloads), queue="bench"
        )

    async def left(self):
        stats = await (await self.linked()).queue_stats()
        return sum(each.available + each.running + each.retryable for each in stats)

    async def work(self):
        client, seen = await self.linked(), self.seen

        @client.task(Noop, queue="bench")
        async def noop(job):
            seen(job.args.payload)

        @client.task(Slow, queue="bench")
        async def slow(job):
            seen("x")
            await asyncio.sleep(job.args.seconds)

        jobs = self.place.concurrency
        if jobs <= 10:
            await client.start([("bench", jobs)])
        else:  # more in flight than the others, and two that claim: twice as fast
            hot = {"max_workers": 4 * jobs, "claim_batch_size": 256, "claimers": 2}
            await client.start([{"name": "bench", **hot}])
        await asyncio.Event().wait()
