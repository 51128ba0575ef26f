"""Dramatiq with Redis: worker threads."""

import threading
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

NAME = "dramatiq"
STORES = ["redis"]
REQUIRES = ["dramatiq[redis]"]
IMPORTS = "dramatiq"
HELP = ["-m", "dramatiq", "--help"]
CAN = ["sync", "many", "slow", "wake"]
DURABLE = False
DURABILITY = (
    "Up to a second of acknowledged jobs can be lost with Redis. Jobs of a dead worker come back"
    " after a minute without a heartbeat, when another one happens to look."
)
SETTINGS = "8 threads, as it comes; no jobs in bulk: one by one"

THREADS = 8


class Contender:
    def __init__(self, place, seen):
        self.place = place
        self.broker = RedisBroker(url=place.url)
        dramatiq.set_broker(self.broker)

        @dramatiq.actor(actor_name="noop", broker=self.broker)
        def noop(payload):
            seen(payload)

        @dramatiq.actor(actor_name="slow", broker=self.broker, time_limit=600_000)
        def slow(seconds):
            seen("x")
            time.sleep(seconds)

        self.noop, self.slow = noop, slow

    def prepare(self):
        self.broker.client.ping()

    def enqueue(self, payload):
        self.noop.send(payload)

    def enqueue_many(self, payloads):
        for payload in payloads:
            self.noop.send(payload)

    def enqueue_slow(self, payloads, seconds):
        for _ in payloads:
            self.slow.send(seconds)

    def left(self):
        """Waiting ones, and those that a worker took and has not acknowledged: their bodies stay
        until then."""
        return self.broker.client.hlen("dramatiq:default.msgs")

    def work(self):
        threads = self.place.concurrency if self.place.concurrency <= 10 else THREADS
        dramatiq.Worker(self.broker, worker_threads=threads).start()
        threading.Event().wait()
