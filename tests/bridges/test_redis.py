"""Redis as a sink and a source, on a real server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as client

from outlast import Breaker, InvalidOption, Outlast
from outlast.bridges import Bad, Message, Redis, Retry, SinkDown
from tests.support import Database, aeventually
from tests.support.redis import RedisServer
from tests.worker.working import sql, work


@pytest.fixture
def connection(redis: RedisServer) -> Iterator[Any]:
    with client.Redis.from_url(redis.url) as opened:
        yield opened


async def test_a_stream_gets_id_body_key_and_headers(
    ol: Outlast, redis: RedisServer, connection: Any
) -> None:
    """R123."""
    orders = ol.outbox("orders", Redis(redis.url, stream="orders"))
    job = orders.publish({"order": 7}, key="order-7", headers={"kind": "new"})
    async with work(ol):
        await aeventually(lambda: connection.xlen("orders"))
    ((_, fields),) = connection.xrange("orders")
    assert fields[b"id"].decode() == job.id and fields[b"key"] == b"order-7"
    assert json.loads(fields[b"body"]) == {"order": 7}
    assert json.loads(fields[b"headers"]) == {"kind": "new"}


async def test_one_wrongtype_of_500_is_dead_with_its_error(
    ol: Outlast, redis: RedisServer, connection: Any
) -> None:
    """R055, R124: sorted sets by message; a real WRONGTYPE from a real server."""
    connection.set("crawl:bad", "a string")
    sink = Redis(redis.url, zset=lambda m: f"crawl:{m.body['host']}", score=lambda m: m.body["n"])
    crawl = ol.outbox("crawl", sink)
    pages = [{"host": "bad" if n == 250 else "good", "n": n} for n in range(500)]
    jobs = ol.enqueue(*(crawl.message(page) for page in pages))
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 499 and ol.counts()["dead"] == 1)
    dead = ol.job(jobs[250].id)
    assert dead.state == "dead" and "WRONGTYPE" in (dead.error or {})["message"]
    members = connection.zrange("crawl:good", 0, -1, withscores=True)
    assert [int(score) for _, score in members] == [n for n in range(500) if n != 250]
    assert json.loads(members[0][0])["id"] == jobs[0].id


async def test_outcomes_of_the_server_are_told_apart(redis: RedisServer, connection: Any) -> None:
    """An answer about a message is `Bad`, one about the server is `SinkDown`."""
    connection.set("text", "x")
    sink = Redis(redis.url, stream=lambda m: m.id)
    await sink.open()
    try:
        outcomes = await sink.send([Message("text", b"1"), Message("ok", b"1")])
        assert isinstance(outcomes[0], Bad) and outcomes[1] is None
        connection.config_set("maxmemory", 1)
        with pytest.raises(SinkDown, match="maxmemory"):
            await sink.send([Message("ok", b"1")])
    finally:
        connection.config_set("maxmemory", 0)
        await sink.close()


async def answers(line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that answers every XADD with one line."""
    while head := await reader.readline():
        words = []
        for _ in range(int(head[1:])):
            size = int((await reader.readline())[1:])
            words.append((await reader.readexactly(size + 2))[:-2].upper())
        writer.write(line if words[0] == b"XADD" else b"+OK\r\n")
        await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("CLUSTERDOWN Hash slot not served", SinkDown),
        ("MASTERDOWN Link with MASTER is down", SinkDown),
        ("READONLY You can't write against a read only replica.", SinkDown),
        ("LOADING Redis is loading the dataset in memory", SinkDown),
        ("OOM command not allowed when used memory > 'maxmemory'.", SinkDown),
        ("MISCONF Redis is configured to save RDB snapshots", SinkDown),
        ("NOREPLICAS Not enough good replicas to write.", SinkDown),
        ("MOVED 3999 127.0.0.1:6381", Retry),
        ("ASK 3999 127.0.0.1:6381", Retry),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Retry),
        ("EXECABORT Transaction discarded because of previous errors.", Retry),
        ("NOPERM this user has no permissions to run the 'xadd' command", Retry),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Bad),
        ("ERR syntax error", Bad),
    ],
)
async def test_answers_about_the_server_are_no_fault_of_a_message(line: str, kind: type) -> None:
    """R054, R055: the client leaves the first word of some of them out."""
    told = f"-{line}\r\n".encode()
    server = await asyncio.start_server(lambda r, w: answers(told, r, w), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = Redis(f"redis://127.0.0.1:{port}/0?protocol=2", stream="orders")
    await sink.open()
    try:
        if kind is SinkDown:
            with pytest.raises(SinkDown):
                await sink.send([Message("a", b"1")])
        else:
            (outcome,) = await sink.send([Message("a", b"1")])
            assert isinstance(outcome, kind)
    finally:
        await sink.close()
        server.close()


async def test_an_entry_that_cannot_be_read_does_not_stop_the_source(
    redis: RedisServer, connection: Any
) -> None:
    """R013: its message has what can be read, and is stored like any other."""
    deep = "[" * 100_000
    connection.xadd("mail", {"body": "1", "id": "deep", "headers": deep})
    connection.xadd("mail", {"body": b"\xff", "id": b"\xfe"})
    connection.xadd("mail", {"body": "2", "id": "good", "headers": '{"a": "b"}'})
    url = f"{redis.url}?decode_responses=true"
    source = Redis(url, stream="mail", group="sync")
    await source.open()
    try:
        found = await source.receive(10, 1.0)
        assert [one.id for one in found] == ["deep", "\\xfe", "good"]
        assert found[0].headers == {"headers": deep} and found[2].headers == {"a": "b"}
        assert found[1].raw == b"\xff"
    finally:
        await source.close()


async def test_a_source_reads_its_group_and_what_others_wrote(
    ol: Outlast, redis: RedisServer, connection: Any
) -> None:
    """An entry without a `body` is the object of its fields."""
    seen = []

    @ol.task
    async def sync(body: dict[str, str]) -> None:
        seen.append(body)

    connection.xadd("mail", {"inbox": "7"})
    connection.xadd("mail", {"body": '{"inbox": "8"}', "id": "m8"})
    ol.source("mail", Redis(redis.url, stream="mail", group="sync"), task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: len(seen) == 2)
        await aeventually(lambda: connection.xinfo_groups("mail")[0]["pending"] == 0)
        await aeventually(lambda: [one.lag for one in ol.sources()] == [0])
    assert seen == [{"inbox": "7"}, {"inbox": "8"}]
    assert "in:mail:m8" in {job.key for job in ol.jobs()}
    assert connection.xinfo_consumers("mail", "sync") == [], "no consumer is left behind"


@pytest.mark.parametrize(
    ("start", "ids"), [("0", ["a", "b", "c"]), ("$", ["c"]), ("7-1", ["b", "c"])]
)
async def test_a_new_group_begins_where_it_is_told(
    redis: RedisServer, connection: Any, start: str, ids: list[str]
) -> None:
    """R026: by default with the first entry, so that nothing is lost; an older group goes on."""
    for number, id in ((1, "a"), (2, "b")):
        connection.xadd("mail", {"body": "1", "id": id}, id=f"7-{number}")
    source = Redis(redis.url, stream="mail", group="sync", start=start)
    await source.open()
    await source.close()
    connection.xadd("mail", {"body": "1", "id": "c"})
    await source.open()
    try:
        assert [message.id for message in await source.receive(10, 1.0)] == ids
    finally:
        await source.close()
    for wrong in ("", "first", 0, "1-", "$$"):
        with pytest.raises(InvalidOption, match="must be '0', '\\$' or the id of an entry"):
            Redis(redis.url, stream="mail", group="sync", start=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("option", "quiet"), [("", 7.0), ("?socket_timeout=0.5", 1.5)])
async def test_a_quiet_stream_is_no_error(
    redis: RedisServer, connection: Any, option: str, quiet: float
) -> None:
    """R123: a wait that is longer than the time limit of the client's socket; what arrives at last
    is there at once."""
    source = Redis(redis.url + option, stream="mail", group="sync")
    await source.open()
    try:
        receiving = asyncio.create_task(source.receive(10, 20.0))
        await asyncio.wait({receiving}, timeout=quiet)  # the silence is what is tested
        assert not receiving.done()
        connection.xadd("mail", {"body": "1", "id": "a"})
        async with asyncio.timeout(1.0):
            (message,) = await receiving
        assert message.id == "a"
        await source.acknowledge([message])
        assert await source.receive(10, 0.01) == []
    finally:
        await source.close()


async def test_messages_that_are_handed_back_end_a_wait(redis: RedisServer) -> None:
    """R182: by a worker that stops; another one, which waits for new ones, gets them."""
    one, other = (Redis(redis.url, stream="mail", group="sync") for _ in range(2))
    with client.Redis.from_url(redis.url) as connection:
        connection.xadd("mail", {"body": "1", "id": "a"})
    await one.open()
    await other.open()
    try:
        messages = await one.receive(1, 1.0)
        receiving = asyncio.create_task(other.receive(10, 20.0))
        await asyncio.wait({receiving}, timeout=0.5)
        await one.hand_back(messages)
        async with asyncio.timeout(10.0):
            assert [message.id for message in await receiving] == ["a"]
    finally:
        await one.close()
        await other.close()


async def test_messages_of_a_consumer_that_is_gone_are_taken_over(redis: RedisServer) -> None:
    """R027: after `idle` seconds; those handed back at once."""
    lost = Redis(redis.url, stream="mail", group="sync", idle=5.0)
    heir = Redis(redis.url, stream="mail", group="sync", idle=5.0)
    with client.Redis.from_url(redis.url) as connection:
        connection.xadd("mail", {"body": "1", "id": "a"})
        connection.xadd("mail", {"body": "2", "id": "b"})
    await lost.open()
    await heir.open()
    try:
        (first,) = await lost.receive(1, 1.0)
        (second,) = await lost.receive(1, 1.0)
        await lost.hand_back([second])
        heir._claimed_at = 0.0
        (back,) = await heir.receive(10, 0.01)
        assert back.id == "b"
        await heir.acknowledge([back])

        async def taken() -> Any:
            heir._claimed_at = 0.0
            return await heir.receive(10, 0.05)

        (over,) = await aeventually(taken)
        assert (over.id, over.raw) == (first.id, b"1")
        await heir.acknowledge([over])
        assert await heir.lag() == 0
    finally:
        await lost.close()
        await heir.close()


@pytest.mark.parametrize("messages", [2000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_a_server_that_is_away_costs_nothing(
    ol: Outlast, own_redis: RedisServer, database: Database, messages: int
) -> None:
    """R054, R223: no attempt, no line for each message, no dead one; all are sent in the end."""
    import logging

    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    breaker = Breaker(probe_first=0.2, probe_cap=2.0)
    orders = ol.outbox("orders", Redis(own_redis.url, stream="orders"), breaker=breaker)
    own_redis.kill()
    away = 3.0 if messages < 20_000 else 60.0

    async def main() -> tuple[int, int]:
        for start in range(0, messages, 1000):
            some = ((n, f"k{n % 50}" if n % 2 else None) for n in range(start, start + 1000))
            await ol.aenqueue(*(orders.message(n, key=key) for n, key in some))
        handler = Lines()
        logging.getLogger("outlast").addHandler(handler)
        async with work(ol):
            await aeventually(lambda: len(ol.breakers()) == 2)
            await asyncio.sleep(away)  # the outage is what is measured
            seen = len(lines), ol.counts()["dead"]
            own_redis.start()
            await aeventually(lambda: ol.counts()["succeeded"] == messages, timeout=240)
        logging.getLogger("outlast").removeHandler(handler)
        return seen

    told, dead = asyncio.run(main())
    records = sql(database, "SELECT count(*) FROM {attempt}")[0][0]
    print(f"{database.kind}: {records} attempt records, {told} log lines, {dead} dead")
    assert records <= 100 and told <= 100 and dead == 0
    assert max(job.failures for job in ol.jobs(limit=messages)) == 0
    with client.Redis.from_url(own_redis.url) as connection:
        entries = connection.xrange("orders")
    assert len({fields[b"id"] for _, fields in entries}) == messages
    for key in (b"k1", b"k49"):
        order = [int(fields[b"body"]) for _, fields in entries if fields.get(b"key") == key]
        assert list(dict.fromkeys(order)) == sorted(set(order))


def test_bad_addresses_are_refused(redis: RedisServer) -> None:
    for wrong in (
        lambda: Redis("127.0.0.1:6379", stream="s"),
        lambda: Redis(redis.url),
        lambda: Redis(redis.url, stream="s", zset="z"),
        lambda: Redis(redis.url, zset="z", group="g"),
    ):
        with pytest.raises(InvalidOption):
            wrong()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:hunter2@localhost:6379/1?password=hunter2", "redis://localhost:6379/1"),
        ("redis://user:hunt@er2@localhost:6379/1", "redis://localhost:6379/1"),
        ("redis://user:hunt/er2@localhost:6379/1", "redis://localhost:6379/1"),
        ("redis://user:hunt?er2@localhost:6379/1", "redis://…"),
        ("redis://localhost:6379/1?password=hunt@er2", "redis://…"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert repr(Redis(url, stream="s")) == f"Redis {shown}, stream s"


def test_a_client_that_is_not_installed_is_named_with_its_extra(tmp_path: Path) -> None:
    """The package imports no client; a bridge without one says what to install."""
    code = """
import sys
sys.modules["redis"] = None
import outlast.bridges
from outlast.bridges import Redis, Sink
try:
    Redis("redis://localhost", stream="s")
except Exception as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True
    )
    assert "Unsupported" in run.stdout and "pip install 'outlast[redis]'" in run.stdout


def test_importing_bridges_imports_no_client() -> None:
    code = "import sys; from outlast.bridges import Redis; print('redis' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True
    )
    assert run.stdout.strip() == "False"
