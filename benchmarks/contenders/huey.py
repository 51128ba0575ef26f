"""Huey: SQLite, Redis or PostgreSQL; worker threads."""

import time

from huey import PostgresHuey, RedisHuey, SqliteHuey
from huey.consumer import Consumer

NAME = "huey"
STORES = ["sqlite", "redis", "postgres"]
REQUIRES = ["huey", "redis", "psycopg[binary]"]
IMPORTS = "huey"
CAN = ["sync", "many", "slow", "wake"]
DURABLE = False
DURABILITY = (
    "A job is removed when a worker takes it: a crash of the worker loses what it was running."
    " On Redis, up to a second of acknowledged jobs too."
)
SETTINGS = "SQLite: fsync on, polled every 5 to 50 ms; one thread; no jobs in bulk: one by one"

THREADS = 1  # more of them only wait for each other when handlers do nothing


class Contender:
    def __init__(self, place, seen):
        self.place = place
        self.huey = huey = _huey(place)

        @huey.task(name="noop")
        def noop(payload):
            seen(payload)

        @huey.task(name="slow")
        def slow(seconds):
            seen("x")
            time.sleep(seconds)

        self.noop, self.slow = noop, slow

    def prepare(self):
        self.huey.pending_count()

    def enqueue(self, payload):
        self.noop(payload)

    def enqueue_many(self, payloads):
        for payload in payloads:
            self.noop(payload)

    def enqueue_slow(self, payloads, seconds):
        for _ in payloads:
            self.slow(seconds)

    def left(self):
        return self.huey.pending_count()

    def work(self):
        threads = self.place.concurrency if self.place.concurrency <= 10 else THREADS
        Consumer(
            self.huey, workers=threads, periodic=False, initial_delay=0.005, max_delay=0.05
        ).run()


def _huey(place):
    if place.store == "sqlite":
        path = place.url.removeprefix("sqlite:///")
        return SqliteHuey(filename=path, fsync=True, timeout=30)
    if place.store == "redis":
        return RedisHuey(url=place.url)
    return PostgresHuey(dsn=place.url)
