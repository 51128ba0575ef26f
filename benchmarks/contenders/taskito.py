"""taskito: a core in Rust, handlers in Python, on SQLite or PostgreSQL."""

from taskito import Queue

NAME = "taskito"
STORES = ["sqlite", "postgres"]
REQUIRES = ["taskito[postgres]"]
IMPORTS = "taskito"
HELP = ["-m", "taskito.cli", "worker", "--help"]
CAN = ["sync", "many", "later", "wake"]  # a full worker claims more: its death is not comparable
DURABLE = ["postgres"]
DURABILITY = (
    "Logged tables; SQLite with synchronous=NORMAL: the last jobs may be lost when the machine"
    " crashes. By its documents, a dead worker's jobs run again after their timeout (300 s)."
)
SETTINGS = (
    "workers = concurrency, scheduler_batch_size 100, push_dispatch; sync handlers, the faster ones"
)


class Contender:
    def __init__(self, place, seen):
        self.place = place
        where = (
            {"backend": "postgres", "db_url": place.url}
            if place.store == "postgres"
            else {"db_path": place.url.removeprefix("sqlite:///")}
        )
        jobs = place.concurrency
        hot = {"scheduler_batch_size": min(100, jobs), "push_dispatch": True}
        self.queue = queue = Queue(workers=jobs, **where, **hot)

        @queue.task(name="noop")
        def noop(payload):
            seen(payload)

    def prepare(self):
        pass  # the constructor makes the tables

    def enqueue(self, payload):
        self.queue.enqueue("noop", (payload,))

    def enqueue_many(self, payloads):
        self.queue.enqueue_many("noop", [(payload,) for payload in payloads])

    def enqueue_later(self, payloads):
        self.queue.enqueue_many("noop", [(p,) for p in payloads], delay=86400.0, priority=9)

    def left(self):
        stats = self.queue.stats()
        return stats["pending"] + stats["running"]

    def work(self):
        self.queue.run_worker()
