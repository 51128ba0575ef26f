"""`outlast outboxes`, `sources`, `source` and `doctor`: what an operator sees of bridges."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from outlast import Breaker, Outlast
from outlast.bridges import Message, SinkDown
from outlast.cli import outlast
from tests.bridges.own_bridges import ListSink, QueueSource
from tests.support import Database, Processes, aeventually, eventually
from tests.support.redis import RedisServer
from tests.worker.working import work

APP = """
from outlast import Context, Outlast
from outlast.bridges import Redis

ol = Outlast()


@ol.task
async def sync(body: int) -> int:
    return body


ol.source("mail", Redis({url!r}, stream="mail", group="sync"), task=sync, wait=1)
ol.source("other", Redis({url!r}, stream="other", group="sync"), task=sync, wait=1)
"""


def said(database: Database, *words: str) -> str:
    given = ["--url", database.url, "--schema", database.schema]
    result = CliRunner().invoke(outlast, [*words, *given])
    assert result.exit_code in (0, 1), result.output
    return result.output


async def test_outboxes_are_listed_with_their_queues(ol: Outlast, database: Database) -> None:
    """R124: what waits, what is dead, and whether the sink is down."""

    def away(message: Message) -> None:
        raise SinkDown("no route")

    orders = ol.outbox("orders", ListSink(away), breaker=Breaker(probe_first=60, probe_cap=60))
    ol.enqueue(orders.message(1), orders.message(2, key="k"))
    assert "No outboxes." in said(database, "outboxes")
    async with work(ol):
        await aeventually(lambda: len(ol.breakers()) == 2)
    (found,) = json.loads(said(database, "outboxes", "--json"))
    assert (found["name"], found["broker"]) == ("orders", "a list")
    assert found["queues"] == ["orders", "orders.keyed"] and found["counts"]["ready"] == 2
    shown = said(database, "outboxes")
    assert "orders" in shown and "down" in shown and "no route" in shown


async def test_sources_are_listed_with_their_errors(ol: Outlast, database: Database) -> None:
    """R014: the doctor tells of one that fails."""

    @ol.task
    async def sync(body: int) -> None: ...

    source = QueueSource(Message("m", b"1"))
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 1)
        source.failures = [ConnectionError("no route")] * 9
        await aeventually(lambda: ol.sources()[0].error)
        assert "no route" in said(database, "sources")
        names = {one["name"] for one in json.loads(said(database, "doctor", "--json"))}
        assert "source-failing" in names
    (found,) = json.loads(said(database, "sources", "--json"))
    assert (found["received"], found["stored"], found["duplicates"]) == (1, 1, 0)
    assert found["message_at"] and found["task"] == "sync"


def test_a_source_runs_alone(
    redis: RedisServer, database: Database, processes: Processes, tmp_path: Path
) -> None:
    """Messages become jobs, and none of them is run here."""
    import redis as client

    (tmp_path / "mail_app.py").write_text(APP.format(url=redis.url))
    with client.Redis.from_url(redis.url) as connection:
        connection.xadd("mail", {"body": "1", "id": "m1"})
        connection.xadd("other", {"body": "1", "id": "m2"})
    env = {"OUTLAST_URL": database.url, "OUTLAST_SCHEMA": database.schema}
    running = processes.python("outlast", "source", "mail", "mail_app", env=env)
    with Outlast(database.url, schema=database.schema) as ol:
        ol.migrate()
        eventually(lambda: ol.counts()["ready"] == 1, message=running.output)
        running.terminate()
        assert running.wait() == 0, running.output()
        assert [job.key for job in ol.jobs()] == ["in:mail:m1"]
        worker = processes.python("outlast", "worker", "mail_app", "--no-sources", env=env)
        eventually(lambda: ol.counts()["succeeded"] == 1, message=worker.output)
        worker.terminate()
        assert worker.wait() == 0
        assert len(ol.jobs()) == 1, "nobody received from the other source"
    unknown = processes.python("outlast", "source", "male", "mail_app", env=env)
    assert unknown.wait() == 1 and "there are: mail, other" in unknown.output()
