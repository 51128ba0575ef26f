"""Chancy: PostgreSQL, psycopg, finished jobs are kept."""

import asyncio

import chancy as library
from chancy import Chancy, Queue, Worker
from chancy.job import Job
from psycopg.rows import dict_row

NAME = "chancy"
STORES = ["postgres"]
REQUIRES = ["chancy", "psycopg[binary]", "uvloop"]
IMPORTS = "chancy"
CAN = ["async", "sync", "many", "within", "slow", "wake"]
DURABLE = True
DURABILITY = (
    "Logged tables. Finished jobs are kept; outcomes are gathered for up to a second before they"
    " are written, and are lost with the process: those jobs run again."
)
SETTINGS = (
    "3 × concurrency, async executor (sync: threads), eager_polling, send_outgoing_interval 0.05 s"
)


@library.job(queue="bench")
async def noop(*, payload: str):
    Contender.seen(payload)


@library.job(queue="bench")
def noop_in_thread(*, payload: str):
    Contender.seen(payload)


@library.job(queue="bench")
async def slow(*, seconds: float):
    Contender.seen("x")
    await asyncio.sleep(seconds)


class Contender:
    def __init__(self, place, seen):
        Contender.seen = seen  # jobs are found by their names: they have nothing else to ask
        self.place = place
        self.app = Chancy(place.url)
        self.sync = place.handler == "sync"
        self.noop = noop_in_thread if self.sync else noop
        self.opened = False

    async def linked(self):
        if not self.opened:
            await self.app.pool.open()
            self.opened = True
        return self.app

    async def prepare(self):
        app = await self.linked()
        await app.migrate()
        async with app.pool.connection() as link:
            await link.execute("CREATE TABLE business (name text NOT NULL)")

    def one(self, payload) -> Job:
        return self.noop.job.with_kwargs(payload=payload)

    async def enqueue(self, payload):
        await (await self.linked()).push(self.one(payload))

    async def enqueue_many(self, payloads):
        async for _ in (await self.linked()).push_many(map(self.one, payloads), batch_size=1000):
            pass

    async def enqueue_within(self, payload):
        app = await self.linked()
        async with app.pool.connection() as link, link.cursor(row_factory=dict_row) as cursor:
            await cursor.execute("INSERT INTO business VALUES ('sold')")
            await app.push_many_ex(cursor, [self.one(payload)])

    async def enqueue_slow(self, payloads, seconds):
        jobs = [slow.job.with_kwargs(seconds=seconds) for _ in payloads]
        async for _ in (await self.linked()).push_many(jobs):
            pass

    async def left(self):
        async with (await self.linked()).pool.connection() as link:
            cursor = await link.execute(
                "SELECT count(*) AS n FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')"
            )
            row = await cursor.fetchone()
            return row["n"] if isinstance(row, dict) else row[0]

    async def work(self):
        app = await self.linked()
        executor = Chancy.Executor.Threaded if self.sync else Chancy.Executor.Async
        jobs = self.place.concurrency
        queue = Queue(
            "bench",
            concurrency=jobs if jobs <= 10 else 3 * jobs,
            executor=executor,
            polling_interval=1,
            eager_polling=True,
        )
        await app.declare(queue, upsert=True)
        worker = Worker(app, register_signal_handlers=False)
        worker.send_outgoing_interval = 0.05
        async with worker:
            await worker.wait_for_shutdown()
