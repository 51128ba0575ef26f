"""Deliveries by worker processes: which may be killed, and which keep a secret."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from outlast import Job, Outlast
from outlast.webhooks.webhook import new_secret, verify
from tests.support import Database, Process, Processes, eventually
from tests.support.tiers import slow_but
from tests.webhooks.receiver import Receiver, answers, hangs

PATIENCE = 30.0


@dataclass
class Program:
    """tests.webhooks.app, with one secret and one receiver."""

    processes: Processes
    database: Database
    receiver: Receiver
    secret: str

    def __call__(self, *words: str) -> Process:
        return self.processes.python("outlast", *words, env=self.environment)

    def worker(self) -> Process:
        return self("worker", "tests.webhooks.app:ol", "--log-level", "debug")

    @property
    def url(self) -> str:
        return self.receiver.url("/hooks/t0ken-in-the-path")

    @property
    def environment(self) -> dict[str, str | None]:
        return {
            "OUTLAST_URL": self.database.url,
            "OUTLAST_SCHEMA": self.database.schema,
            "OUTLAST_POLL_MAX": "0.2",
            "BILLING_URL": self.url,
            "BILLING_SECRET": self.secret,
        }


@pytest.fixture
def program(processes: Processes, database: Database, receiver: Receiver) -> Program:
    return Program(processes, database, receiver, new_secret())


def test_a_worker_that_is_killed_after_its_post_delivers_the_same_message_again(
    program: Program, ol: Outlast, receiver: Receiver
) -> None:
    """R126, R128: at least once, and known again by its id. The receiver has it all, and the worker
    has no answer yet."""
    receiver.behave = lambda got: hangs if got.attempt == 1 else answers(200)
    first = program.worker()
    made = program("enqueue", "add", "--app", "tests.webhooks.app:ol", "--args", '{"a": 1, "b": 2}')
    job = made.succeed(timeout=PATIENCE).strip()
    eventually(lambda: receiver.got, PATIENCE, message=first.output)
    first.kill()
    assert ol.job(job).state == "succeeded"
    second = program.worker()
    eventually(lambda: len(receiver.got) == 2, PATIENCE, message=second.output)
    one, again = receiver.got
    assert (one.attempt, again.attempt) == (1, 2)
    assert one.body == again.body
    assert verify(one.headers, one.body, program.secret, tolerance=600).id == one.id == again.id
    (delivery,) = ol.jobs(task="billing")
    eventually(lambda: ol.job(delivery.id).state == "succeeded", PATIENCE, message=second.output)
    assert delivery.id == one.id


@pytest.mark.parametrize("status", slow_but([200], [200, 404]))
def test_the_secret_is_in_no_row_no_log_and_no_argument(
    program: Program, ol: Outlast, receiver: Receiver, database: Database, status: int
) -> None:
    """R128, R198: delivered after failures, or dead; nor is the url, which may be a secret too."""
    receiver.behave = lambda got: answers(503 if got.attempt < 3 else status, "as you like")
    worker = program.worker()
    told = ["--app", "tests.webhooks.app:ol", "--tell", "billing"]
    enqueued = program("enqueue", "give_up", *told).succeed(timeout=PATIENCE)

    def delivered() -> Job | None:
        return next((job for job in ol.jobs(task="billing") if job.final), None)

    job = eventually(delivered, PATIENCE, message=worker.output)
    assert job is not None
    assert (job.state, job.attempt) == ("succeeded" if status == 200 else "dead", 3)
    worker.terminate()
    worker.succeed(timeout=PATIENCE)
    text = "\n".join([enqueued, worker.output(), *map(str, everything(database))])
    assert job.id in text
    encoded = program.secret.removeprefix("whsec_")
    key = base64.b64decode(encoded)
    for word in (encoded, key.hex(), repr(key)[2:-1], "t0ken", urlsplit(program.url).path):
        assert word not in text


def everything(database: Database) -> list[tuple[object, ...]]:
    """Every row of every table of ours."""
    if database.is_sqlite:
        tables = database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
    else:
        tables = database.rows(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", (database.schema,)
        )
    assert len(tables) > 8
    return [row for (name,) in tables for row in database.rows(f"SELECT * FROM {name}")]
