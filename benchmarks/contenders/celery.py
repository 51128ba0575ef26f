"""Celery with Redis: worker threads."""

import time

from celery import Celery
from redis import Redis

NAME = "celery"
STORES = ["redis"]
REQUIRES = ["celery[redis]"]
IMPORTS = "celery"
HELP = ["-m", "celery", "worker", "--help"]
CAN = ["sync", "many", "slow", "wake"]
SHARE = 0.25
DURABLE = False
DURABILITY = (
    "Up to a second of acknowledged jobs can be lost with Redis. With acks_late, jobs of a dead"
    " worker come back after the visibility timeout, an hour as it comes."
)
SETTINGS = "task_acks_late, threads, prefetch multiplier 4, results ignored; no jobs in bulk"

THREADS = 10


class Contender:
    def __init__(self, place, seen):
        self.place = place
        self.app = app = Celery("bench", broker=place.url)
        app.conf.update(
            task_acks_late=True, task_ignore_result=True, worker_hijack_root_logger=False
        )
        self.redis = Redis.from_url(place.url)

        @app.task(name="noop")
        def noop(payload):
            seen(payload)

        @app.task(name="slow")
        def slow(seconds):
            seen("x")
            time.sleep(seconds)

        self.noop, self.slow = noop, slow

    def prepare(self):
        self.redis.ping()

    def enqueue(self, payload):
        self.noop.delay(payload)

    def enqueue_many(self, payloads):
        with self.app.producer_or_acquire() as producer:
            for payload in payloads:
                self.noop.apply_async((payload,), producer=producer)

    def enqueue_slow(self, payloads, seconds):
        for _ in payloads:
            self.slow.delay(seconds)

    def left(self):
        return self.redis.llen("celery") + self.redis.hlen("unacked")

    def work(self):
        self.app.worker_main(
            ["worker", "--pool=threads", f"--concurrency={THREADS}", "--loglevel=ERROR",
             "--without-gossip", "--without-mingle", "--prefetch-multiplier=4"]
        )  # fmt: skip
