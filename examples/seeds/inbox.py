"""Mails that no kill loses: pushes from a broker, approvals and exports, browsers that watch.

    python inbox.py                                on a SQLite file of its own, pushes by Redis
    python inbox.py --broker sqs --url postgresql://…
    python inbox.py --kill before-acknowledge      one accident alone

A mailbox pushes "something is new in inbox 7". The source makes a job of each push, once; `pushed`
asks for a `sync` of the inbox, unless one waits already; an approval of a mail and the job that
exports it commit together; browsers follow the exports.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import stage as stages
from inside import execute, note, notes, own_tables, point, query, transaction
from processes import answers, free_port
from service import Follower, Watchers, metric, serve, token

from outlast import Context, Outlast
from outlast.bridges import Message, Redis, Sqs
from outlast.loops import Loop
from outlast.verify.faults.proxy import Proxy

POINTS = ("before-acknowledge", "after-acknowledge", "before-commit", "after-commit")
KILLS = (*POINTS, "watchers", "broker", "random")
INBOXES, ROUND, WATCHERS, AWAY_S, POLLS = 8, 40, 200, 10.0, 12
BROKER, EVENTS = "SEED_BROKER", "/api/v1/events?kind=log&task=export&after=0"
TABLES = (
    "CREATE TABLE inbox (id integer PRIMARY KEY, seen integer NOT NULL)",
    "CREATE TABLE mail (id text NOT NULL)",  # not unique, so that a mail stored twice is seen
    "CREATE TABLE document (mail text NOT NULL)",
)

ol = Outlast()
survives = ol.task(max_crashes=100)  # these workers are killed far more often than yours


@dataclass(frozen=True)
class Push:
    inbox: int


@survives
def pushed(push: Push, ctx: Context) -> None:
    note("runs", "pushed")
    ctx.enqueue(sync.using(key=f"inbox-{push.inbox}", unique="waiting").job(push.inbox))


@survives
def sync(inbox: int, ctx: Context) -> None:
    """Store the mails that are new, in the transaction that completes the job."""
    note("runs", "sync")
    with ctx.completing() as conn:
        own_tables(conn)
        lock = "UPDATE inbox SET seen = seen WHERE id = ? RETURNING seen"
        ((seen,),) = execute(conn, lock, inbox)
        mails = notes(f"inbox-{inbox}")
        for (id,) in mails[seen:]:
            execute(conn, "INSERT INTO mail VALUES (?)", id)
        execute(conn, "UPDATE inbox SET seen = ? WHERE id = ?", len(mails), inbox)


@survives
def export(mail: str, ctx: Context) -> None:
    note("runs", "export")
    ctx.log("exported", mail=mail)
    note("exports", mail)


def approve() -> None:
    """The approver's process."""

    def approve_one() -> float:
        new = "SELECT min(id) FROM mail WHERE id NOT IN (SELECT mail FROM document)"
        with transaction() as conn:
            ((mail,),) = execute(conn, new)
            if mail is None:
                return 0.1
            execute(conn, "INSERT INTO document VALUES (?)", mail)
            export.using(conn=conn).enqueue(mail)
            point("before-commit")
        point("after-commit")
        return 0.0

    print("approving", flush=True)
    Loop("approver", approve_one, every=0.1).run()


# The broker


class Killed:
    """A source whose process may die on either side of the acknowledgement. Its jobs are committed
    by then."""

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        messages: Sequence[Message] = await super().receive(limit, wait)  # type: ignore[misc]
        for message in messages:
            note("received", message.id)
        return messages

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        point("before-acknowledge")
        await super().acknowledge(messages)  # type: ignore[misc]
        point("after-acknowledge")


class KilledRedis(Killed, Redis):
    pass


class KilledSqs(Killed, Sqs):
    pass


if address := os.environ.get(BROKER):  # in the processes that `play` starts
    source = (
        KilledRedis(address, stream="mail", group="sync", idle=2)
        if address.startswith("redis:")
        else KilledSqs(address, visibility=2, region="us-east-1")
    )
    ol.source("mail", source, task=pushed, batch=10, wait=2)


class RedisBroker:
    def __init__(self, stage: stages.Stage, port: int) -> None:
        from redis import Redis as Client

        self._stage, self._port = stage, port
        self._server = stage.redis(port)
        self._client = Client(port=port)

    def url(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0"

    def push(self, id: str, body: str) -> None:
        self._client.xadd("mail", {"id": id, "body": body})

    def go_away(self) -> None:
        self._stage.kill(self._server, "broker")

    def come_back(self) -> None:
        self._server.restart()
        self._stage.wait(lambda: answers(self._port), "Redis is back")


class SqsBroker:
    """moto's server. It has its queues in memory, so the line to it is cut instead."""

    def __init__(self, stage: stages.Stage, port: int) -> None:
        import boto3

        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        os.environ |= keys
        where = ("-H", "127.0.0.1", "-p", port)
        stage.start("moto", sys.executable, "-m", "moto.server", *where)
        stage.wait(lambda: answers(port), "moto answers")
        endpoint = f"http://127.0.0.1:{port}"
        self._client: Any = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1")
        self._queue = self._client.create_queue(QueueName="mail")["QueueUrl"]

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}/{self._queue.split('/', 3)[3]}"

    def push(self, id: str, body: str) -> None:
        name = {"outlast-id": {"DataType": "String", "StringValue": id}}
        self._client.send_message(QueueUrl=self._queue, MessageBody=body, MessageAttributes=name)

    def go_away(self) -> None:
        pass

    def come_back(self) -> None:
        pass


# The play


class Play:
    def __init__(self, stage: stages.Stage, broker: RedisBroker | SqsBroker, line: Proxy) -> None:
        self.stage, self.broker, self.line = stage, broker, line
        self.mails: list[str] = []
        python = sys.executable
        self.source = stage.start("source", python, "-m", "outlast", "source", "mail", "inbox:ol")
        self.workers = [stage.worker(f"worker-{n}", "--no-sources") for n in (1, 2)]
        code = "import inbox; inbox.approve()"
        self.approver = stage.start("approver", python, "-c", code)
        self.port, self.secret = free_port(), token("read")
        self.server = serve(stage, self.port)
        self.browser = Follower(self.port, self.secret, EVENTS)

    def receive(self, number: int = ROUND) -> None:
        """Mails come in, and are pushed; some pushes come twice, as brokers do."""
        for _ in range(number):
            inbox, id = self.stage.random.randrange(INBOXES), f"mail-{len(self.mails)}"
            note(f"inbox-{inbox}", id)
            self.mails.append(id)
            for _ in range(self.stage.random.choice((1, 1, 1, 2))):
                self.broker.push(id, json.dumps({"inbox": inbox}))

    def is_done(self) -> bool:
        exported = {mail for (mail,) in notes("exports")}
        followed = {event["data"]["mail"] for event in self.browser.events}
        pushed = ol.jobs(task="pushed", limit=10_000)
        number = len(self.mails)
        return len(exported) == len(followed) == len(pushed) == number and not open_jobs()

    def reset_watchers(self) -> None:
        """Half of them at once, and half when the server has subscribed them."""
        half = WATCHERS // 2
        Watchers(self.port, self.secret, EVENTS, half).reset()
        late = Watchers(self.port, self.secret, EVENTS, half)
        self.stage.wait(lambda: (self.subscribers() or 0) >= half, "the watchers are subscribed")
        late.reset()
        self.stage.show("watchers reset before the first frame", WATCHERS)

    def lose_the_broker(self) -> None:
        """For ten seconds. The source waits longer and longer, instead of burning a core."""
        self.broker.go_away()
        self.line.refuse()
        before, until = self.line.accepted, time.monotonic() + AWAY_S
        if self.stage.chosen("watchers"):
            self.reset_watchers()
        self.stage.wait(lambda: time.monotonic() > until, "ten seconds")
        self.stage.at_most("polls while the broker is away", self.line.accepted - before, POLLS)
        self.broker.come_back()
        self.line.accept()

    def run(self) -> None:
        stage = self.stage
        self.receive()
        for place in filter(stage.chosen, POINTS):
            self.receive()
            stage.die_at(place, self.source if "acknowledge" in place else self.approver)
        if stage.chosen("random"):
            self.receive()
            victims = (self.source, self.approver, self.server, *self.workers)
            stage.kill_until(self.is_done, *victims, every=0.7)
        self.receive()
        if stage.chosen("broker"):
            self.lose_the_broker()
        elif stage.chosen("watchers"):
            self.reset_watchers()
        stage.wait(
            self.is_done, "every mail is stored, approved, exported, and seen by the browser"
        )
        self.count()

    def subscribers_left(self) -> int | None:
        """After all browsers have gone."""
        with suppress(stages.Stuck):
            self.stage.wait(lambda: self.subscribers() == 0, "no subscribers", 5.0)
        return self.subscribers()

    def subscribers(self) -> int | None:
        number = metric(self.port, "outlast_event_subscribers")
        return None if number is None else int(number)

    def count(self) -> None:
        stage, browser = self.stage, self.browser
        browser.stop()
        left = self.subscribers_left()
        stored = [id for (id,) in query("SELECT id FROM mail")]
        approved = [mail for (mail,) in query("SELECT mail FROM document")]
        exports = [job.args["mail"] for job in ol.jobs(task="export", limit=10_000)]
        received = [id for (id,) in notes("received")]
        stage.show("mails", len(self.mails))
        stage.show("pushes received again", len(received) - len(set(received)))
        stage.equal(
            "pushes that became jobs", len(ol.jobs(task="pushed", limit=10_000)), len(self.mails)
        )
        stage.show("syncs", len(ol.jobs(task="sync", limit=10_000)))
        stage.show("jobs", sum(ol.counts().values()))
        stage.show("runs", len(notes("runs")))
        stage.equal("lost", len(set(self.mails) - set(stored)), 0)
        stage.equal("twice", len(stored) - len(set(stored)), 0)
        stage.equal("approvals", len(approved), len(self.mails))
        stage.equal("exports", len(exports), len(approved))
        stage.equal("approvals without an export", len(set(approved) - set(exports)), 0)
        ids = [event["id"] for event in browser.events]
        stage.equal("events that the browser got twice", len(ids) - len(set(ids)), 0)
        stage.equal("dead jobs", ol.counts()["dead"], 0)
        stage.equal("subscribers left", left, 0)


def open_jobs() -> int:
    return sum(ol.counts()[state] for state in ("waiting", "scheduled", "ready", "running"))


def play(stage: stages.Stage) -> None:
    ol.migrate()
    for table in TABLES:
        query(table)
    for inbox in range(INBOXES):
        query("INSERT INTO inbox VALUES (?, 0)", inbox)
    port = free_port()
    broker = (RedisBroker if stage.options.broker == "redis" else SqsBroker)(stage, port)
    with Proxy(("127.0.0.1", port)) as line:
        os.environ[BROKER] = broker.url(line.port)
        Play(stage, broker, line).run()


if __name__ == "__main__":
    stages.main("inbox", KILLS, broker={"choices": ("redis", "sqs"), "default": "redis"})
