"""A crawl and its outbox: pages and the messages about them commit together, whatever is killed.

    python crawl.py [--url URL] [--seed N] [--json] [--kill WHAT] [--pages 500]

Two workers crawl a site of 500 pages. Each page's row and its entry for a Redis sorted set commit
in the transaction that completes the fetch. A relay sends the entries in batches of 500. Killed are
the fetchers, the relay in its batch, an importer and a canceller around their COMMIT; the key of
one entry has the wrong type; and Redis is away for ten times the retry budget. On PostgreSQL all
processes go through PgBouncer in transaction mode.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.request import urlopen

from crawled_site import serving
from inside import URL, execute, note, notes, on_sqlite, own_tables, point, query, transaction
from pooler import pgbouncer
from processes import Process, free_port
from stage import Stage, main

from outlast import Breaker, Call, Context, Outlast, Retry, TooLate, chain
from outlast.bridges import Message, Redis

BATCH = 500
BUDGET = Retry(max_attempts=4, base=0.1, cap=0.2, jitter=0.0)
BUDGET_S = 0.1 + 0.2 + 0.2  # from the first attempt to the last
SITE, REDIS = "SEED_SITE", "SEED_REDIS"

ol = Outlast()


# The program: fetch pages, and tell others of them by a sorted set


class Frontier(Redis):
    """A sorted set for each host. A relay may die before, within and after its batch."""

    async def open(self) -> None:
        note("connects", time.monotonic())
        await super().open()

    async def send(self, messages: Sequence[Message]) -> Sequence[Any]:
        note("batches", len(messages))
        point("relay before the send")
        half = (len(messages) + 1) // 2
        outcomes = list(await super().send(messages[:half]))
        point("relay in the batch")
        if messages[half:]:
            outcomes += await super().send(messages[half:])
        point("relay after the send")
        return outcomes


def host_of(message: Message) -> str:
    host: str = message.body["host"]
    return f"frontier:{host}"


# A killed relay is no fault of its messages, and this program kills many: hence max_crashes.
frontier = ol.outbox(
    "frontier",
    Frontier(os.environ.get(REDIS, "redis://127.0.0.1:6379/0"), zset=host_of),
    batch=BATCH, wait=0.3, retry=BUDGET, max_crashes=100,
    breaker=Breaker(probe_first=0.1, probe_cap=1.0),
)  # fmt: skip


def write_page(conn: Any, crawl: str, path: str, host: str = "example.org") -> None:
    """A page and its entry, in the caller's transaction."""
    entry = frontier.publish({"crawl": crawl, "path": path, "host": host}, conn=conn)
    execute(conn, "INSERT INTO page VALUES (?, ?, ?)", crawl, path, entry.id)


@ol.task(queue="fetch", max_crashes=100)
def fetch(path: str, ctx: Context) -> int:
    with urlopen(f"{os.environ[SITE]}{path}", timeout=10) as response:
        page = json.load(response)
    ctx.enqueue(*map(visit, page["links"]), join=True)  # the summary waits for them, too
    with ctx.completing(len(page["links"])) as conn:
        own_tables(conn)
        write_page(conn, "first", path, page["host"])
        point("fetcher before its commit")
    note("fetched", path)
    point("fetcher after its commit")
    return len(page["links"])


def visit(path: str) -> Call[int]:
    return fetch.using(key=f"first {path}").job(path)


@ol.task(queue="fetch", max_crashes=100)
def summary(ctx: Context) -> int:
    return sum(1 for _ in ctx.results())


def add(crawl: str, first: int, number: int) -> None:
    """Import pages, all or none."""
    with transaction() as conn:
        for n in range(first, first + number):
            write_page(conn, crawl, f"/{n}")
        point("importer before its commit")
    point("importer after its commit")


def cancel(crawl: str) -> None:
    """End a crawl: its row and the entries that were not sent, in one transaction."""
    with transaction() as conn:
        execute(conn, "UPDATE crawl SET state = 'cancelled' WHERE name = ?", crawl)
        rows = execute(conn, "SELECT entry FROM page WHERE crawl = ? ORDER BY entry", crawl)
        for (entry,) in rows:
            try:
                ol.cancel(entry, f"crawl {crawl} was cancelled", conn=conn)
            except TooLate:
                continue  # it was sent before
        point("canceller before its commit")
    point("canceller after its commit")


# The accident, replayed


class Crawl:
    """The scenes, in order."""

    def __init__(self, stage: Stage) -> None:
        import redis

        self.stage, self.pages = stage, stage.options.pages
        self.cancelled, self.sent_before = self.pages // 2, self.pages // 5
        port = free_port()
        os.environ[REDIS] = f"redis://127.0.0.1:{port}/0"
        self.redis = stage.redis(port)
        self.client = redis.Redis.from_url(os.environ[REDIS])
        with transaction() as conn:
            execute(conn, "CREATE TABLE crawl (name TEXT PRIMARY KEY, state TEXT NOT NULL)")
            execute(
                conn,
                "CREATE TABLE page (crawl TEXT, path TEXT, entry TEXT, PRIMARY KEY (crawl, path))",
            )
            for name in ("first", "second", "third"):
                execute(conn, "INSERT INTO crawl VALUES (?, 'running')", name)

    # What can be seen

    def entries(self, crawl: str) -> list[str]:
        return [entry for (entry,) in query("SELECT entry FROM page WHERE crawl = ?", crawl)]

    def sent(self, crawl: str) -> list[str]:
        """The ids of a crawl's messages in Redis, as often as they are there."""
        keys = [key for key in self.client.keys("frontier:*") if self.client.type(key) == b"zset"]
        texts: list[Any] = [one for key in keys for one in self.client.zrange(key, 0, -1)]
        members = [json.loads(one) for one in texts]
        return [one["id"] for one in members if json.loads(one["body"])["crawl"] == crawl]

    def states(self, crawl: str) -> Counter[str]:
        """How many of a crawl's entries are in which state."""
        ours = set(self.entries(crawl))
        return Counter(str(job.state) for job in all_jobs("frontier") if job.id in ours)

    # Scenes

    def crawl(self) -> None:
        """Fetchers die before and after the COMMIT of a page, and at random."""
        other_host = self.stage.random.randrange(self.pages)
        with serving(self.pages, other_host) as os.environ[SITE]:
            last = ol.enqueue(chain(visit("/"), summary.job()))[-1]
            flags = ("--queues", "fetch", "--concurrency", 8)
            fetchers = [self.stage.worker(f"fetcher-{n}", *flags) for n in (1, 2)]
            for where in ("before its commit", "after its commit"):
                self.die_at("fetcher", where, *fetchers)
            if self.stage.chosen("fetcher"):
                self.kill_fetchers(fetchers)
            self.stage.wait(lambda: ol.job(last.id).final, "the summary is made")
            for fetcher in fetchers:
                fetcher.kill()
        entries = self.entries("first")
        jobs = {job.id for job in all_jobs("frontier")}
        self.stage.equal("pages crawled", len(entries), self.pages)
        self.stage.equal("pages that the summary counts", ol.job(last.id).result, self.pages)
        self.stage.equal("pages without an entry", len(set(entries) - jobs), 0)
        self.stage.equal("entries without a page", len(jobs - set(entries)), 0)

    def kill_fetchers(self, fetchers: list[Process]) -> None:
        """At three random pages, whichever fetcher."""
        moments = self.stage.random.sample(range(self.pages // 10, self.pages * 9 // 10), 3)
        for pages in sorted(moments):
            self.stage.wait(lambda: len(notes("fetched")) >= pages, f"{pages} pages")  # noqa: B023
            self.stage.kill(victim := self.stage.random.choice(fetchers), "fetcher at random")
            victim.restart()

    def relay(self) -> None:
        """The relay dies before, within and after a batch of 500; then one entry is refused."""
        self.client.set("frontier:legacy.example.org", "a text of another program")
        relay = self.stage.worker("relay", "--queues", "frontier")
        for where in ("before the send", "in the batch", "after the send"):
            self.die_at("relay", where, relay)
        self.wait_settled("first")
        entries, sent = self.entries("first"), self.sent("first")
        dead = [job for job in all_jobs("frontier") if job.state == "dead"]
        calls = self.client.info("commandstats")["cmdstat_zadd"]["calls"]
        largest = max(int(n) for (n,) in notes("batches"))
        self.stage.equal("messages in the largest batch", largest, self.pages)
        self.stage.equal("sent, with one entry of the wrong type", len(sent), self.pages - 1)
        self.stage.equal("members of one entry too many", len(sent) - len(set(sent)), 0)
        self.stage.equal("sent without a page", len(set(sent) - set(entries)), 0)
        self.stage.show("commands that Redis has seen", calls)
        self.stage.equal("dead", len(dead), 1)
        error = str(dead[0].error["message"]) if dead and dead[0].error else "none"
        known = "WRONGTYPE" if "WRONGTYPE" in error else error
        self.stage.equal("error of the dead entry", known, "WRONGTYPE")
        self.client.delete("frontier:legacy.example.org")  # the cause is fixed: redrive
        for job in dead:
            ol.retry(job.id)
        self.wait_settled("first")
        self.stage.equal("sent, after the redrive", len(set(self.sent("first"))), self.pages)

    def outage(self) -> None:
        """Redis is away for ten times the budget. A crawl is cancelled meanwhile."""
        add("third", 0, self.sent_before)
        self.wait_settled("third")
        self.redis.kill()
        away = time.monotonic()
        self.stage.kills["redis"] += 1
        self.importing()
        add("third", self.sent_before, self.cancelled)
        self.cancelling()
        self.stage.wait(lambda: time.monotonic() - away > 10 * BUDGET_S, "the outage lasts", 15)
        states = self.states("second")
        waiting = states["ready"] + states["running"] + states["scheduled"]
        self.stage.equal("Redis away: entries that wait", waiting, self.pages)
        self.stage.equal("Redis away: dead", states["dead"], 0)
        connects = sum(float(at) > away for (at,) in notes("connects"))
        seconds = time.monotonic() - away
        self.stage.show("Redis away: seconds", round(seconds, 1))
        self.stage.at_most("Redis away: calls", connects, 8 + 2 * seconds)
        self.redis.restart()
        self.wait_settled("second")
        spent = {job.id: job.attempt - 1 for job in all_jobs("frontier")}
        ours = self.entries("second")
        self.stage.equal("Redis back: sent", len(set(self.sent("second"))), self.pages)
        self.stage.equal("Redis back: attempts spent", sum(spent[id] for id in ours), 0)
        self.stage.equal("cancelled entries sent", len(self.sent("third")) - self.sent_before, 0)

    def importing(self) -> None:
        import_all = f"add('second', 0, {self.pages})"
        if self.run("importer", import_all, "before its commit"):
            self.stage.equal("imported before the commit", len(self.entries("second")), 0)
        if not self.run("importer", import_all, "after its commit"):
            add("second", 0, self.pages)
        self.stage.equal("imported after the commit", len(self.entries("second")), self.pages)

    def cancelling(self) -> None:
        if self.run("canceller", "cancel('third')", "before its commit"):
            states = self.states("third")
            self.stage.equal("cancelled before the commit", states["cancelled"], 0)
            self.stage.equal("crawl before the commit", self.state_of("third"), "running")
        if not self.run("canceller", "cancel('third')", "after its commit"):
            cancel("third")
        # An entry in flight, as a probe, is cancelled by its worker a moment after the commit.
        self.wait_settled("third")
        cancelled = self.states("third")["cancelled"]
        self.stage.equal("cancelled after the commit", cancelled, self.cancelled)
        self.stage.equal("crawl after the commit", self.state_of("third"), "cancelled")

    # Parts of scenes

    def state_of(self, crawl: str) -> str:
        ((state,),) = query("SELECT state FROM crawl WHERE name = ?", crawl)
        return str(state)

    def wait_settled(self, crawl: str) -> None:
        """Until each entry of a crawl is sent, dead or cancelled."""
        ours = self.entries(crawl)

        def settled() -> bool:
            while ours and ol.job(ours[-1]).final:
                ours.pop()
            return not ours

        self.stage.wait(settled, f"the entries of the {crawl} crawl are settled")

    def die_at(self, who: str, where: str, *processes: Process) -> None:
        if self.stage.chosen(who):
            self.stage.die_at(f"{who} {where}", *processes)

    def run(self, who: str, call: str, where: str) -> bool:
        """A process of the program that makes one call, and dies at a named point in it; whether
        it was wanted."""
        program = (sys.executable, "-c", f"import crawl; crawl.{call}")
        if self.stage.chosen(who):
            self.stage.die_at(f"{who} {where}", act=lambda: self.stage.start(who, *program))
        return self.stage.chosen(who)


def all_jobs(queue: str) -> list[Any]:
    jobs: list[Any] = []
    while page := ol.jobs(queue=queue, before=jobs[-1].id if jobs else None):
        jobs += page
    return jobs


def play(stage: Stage) -> None:
    direct = os.environ[URL]
    if not on_sqlite():
        os.environ[URL] = pgbouncer(stage, direct)
        ol.move(os.environ[URL])
    # Behind a pooler, jobs of a killed worker wait for the end of its lease.
    os.environ |= {"OUTLAST_LEASE": "2", "OUTLAST_RECLAIM_EVERY": "0.2", "OUTLAST_POLL_MAX": "0.2"}
    try:
        ol.migrate()
        scenes = Crawl(stage)
        scenes.crawl()
        scenes.relay()
        scenes.outage()
    finally:
        os.environ[URL] = direct


if __name__ == "__main__":
    size = {"type": int, "default": BATCH, "help": "pages of the site; default: %(default)s"}
    main("crawl", ["fetcher", "relay", "importer", "canceller"], pages=size)
