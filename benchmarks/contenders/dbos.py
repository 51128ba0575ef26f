"""DBOS: durable workflows on PostgreSQL or SQLite; a job is a workflow without steps."""

import threading
import time

import sqlalchemy
from dbos import DBOS, DBOSClient

NAME = "dbos"
STORES = ["postgres", "sqlite"]
REQUIRES = ["dbos"]
IMPORTS = "dbos"
CAN = ["async", "sync", "many", "slow", "wake"]
SHARE = 0.05
DURABLE = True
DURABILITY = (
    "Inputs and results are kept. What a dead process was running is only run again by a process"
    " that is started with the same executor id and the same code."
)
SETTINGS = "polling_interval_sec 0.05; no jobs in bulk: one by one"

LEFT = "SELECT count(*) FROM {} WHERE status IN ('ENQUEUED', 'PENDING')"


class Contender:
    def __init__(self, place, seen):
        self.place, self.client, self.engine = place, None, None
        self.config = {
            "name": "bench",
            "system_database_url": place.url,
            "application_version": "1",
            "console_log_level": "ERROR",
            "run_admin_server": False,
        }
        self.seen = seen

    def prepare(self):
        DBOS(config=self.config)
        DBOS.launch()
        DBOS.register_queue(
            "bench", worker_concurrency=self.place.concurrency, polling_interval_sec=0.05
        )
        DBOS.destroy()

    def linked(self):
        if self.client is None:
            self.client = DBOSClient(system_database_url=self.place.url)
        return self.client

    def put(self, workflow, *args):
        options = {"workflow_name": workflow, "queue_name": "bench", "application_name": "bench"}
        self.linked().enqueue(options, *args)

    def enqueue(self, payload):
        self.put("noop", payload)

    def enqueue_many(self, payloads):
        for payload in payloads:
            self.put("noop", payload)

    def enqueue_slow(self, payloads, seconds):
        for _ in payloads:
            self.put("slow", seconds)

    def left(self):
        if self.engine is None:
            url = self.place.url.replace("postgresql://", "postgresql+psycopg://")
            self.engine = sqlalchemy.create_engine(url)
        sqlite = self.place.store == "sqlite"
        table = "workflow_status" if sqlite else "dbos.workflow_status"
        with self.engine.connect() as link:
            return link.execute(sqlalchemy.text(LEFT.format(table))).scalar()

    def work(self):
        seen = self.seen
        DBOS(config=self.config)
        if self.place.handler == "sync":

            @DBOS.workflow(name="noop")
            def noop(payload):
                seen(payload)

        else:

            @DBOS.workflow(name="noop")
            async def noop(payload):
                seen(payload)

        @DBOS.workflow(name="slow")
        def slow(seconds):
            seen("x")
            time.sleep(seconds)

        DBOS.listen_queues(["bench"])
        DBOS.launch()
        threading.Event().wait()
