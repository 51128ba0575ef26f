"""SAQ: Redis or PostgreSQL, asyncio."""

import asyncio

from saq import Queue, Worker

NAME = "saq"
STORES = ["redis", "postgres"]
REQUIRES = ["saq[redis,postgres]", "psycopg[binary]", "uvloop"]
IMPORTS = "saq"
HELP = ["-m", "saq", "--help"]
CAN = ["async", "sync", "many", "slow", "wake"]
SHARE = 0.25
DURABLE = ["postgres"]
DURABILITY = (
    "On Redis, up to a second of acknowledged jobs can be lost. Jobs of a dead worker are swept"
    " only after their time-out (10 s as it comes, then not retried unless asked for)."
)
SETTINGS = "no jobs in bulk: 100 calls at once; jobs with retries=3"


class Contender:
    def __init__(self, place, seen):
        self.place, self.seen = place, seen
        self.queue = Queue.from_url(place.url, name="bench")
        self.connected = False

    async def linked(self):
        if not self.connected:
            await self.queue.connect()
            self.connected = True
        return self.queue

    async def prepare(self):
        await self.linked()

    async def enqueue(self, payload):
        await (await self.linked()).enqueue("noop", payload=payload, retries=3)

    async def enqueue_many(self, payloads):
        for first in range(0, len(payloads), 100):
            await asyncio.gather(*map(self.enqueue, payloads[first : first + 100]))

    async def enqueue_slow(self, payloads, seconds):
        queue = await self.linked()
        for _ in payloads:
            await queue.enqueue("slow", seconds=seconds, timeout=0, retries=3)

    async def left(self):
        return await (await self.linked()).count("incomplete")

    async def work(self):
        seen = self.seen

        async def noop(ctx, *, payload):
            seen(payload)

        def noop_in_thread(ctx, *, payload):
            seen(payload)

        async def slow(ctx, *, seconds):
            seen("x")
            await asyncio.sleep(seconds)

        handler = noop_in_thread if self.place.handler == "sync" else noop
        worker = Worker(
            await self.linked(),
            functions=[("noop", handler), ("slow", slow)],
            concurrency=self.place.concurrency,
        )
        await worker.start()
