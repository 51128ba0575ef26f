"""NATS JetStream as a sink and a source, on a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import InvalidOption, Outlast
from outlast.bridges import Bad, Message, Nats, SinkDown
from tests.bridges import nats_broker
from tests.bridges.kill_checks import (
    check_away,
    check_cancelled_receive,
    check_round_trip,
)
from tests.support import Proxy, aeventually
from tests.worker.working import work


@pytest.fixture
def url(nats_url: str) -> str:
    return nats_url


def test_what_is_received_is_what_was_sent(url: str) -> None:
    """R123: body, key, headers and id, whatever is in them."""
    asyncio.run(check_round_trip(Nats(url, subject="mail"), nats_broker.source()))


def test_a_cancelled_receive_loses_nothing(url: str) -> None:
    """R182."""
    asyncio.run(check_cancelled_receive(nats_broker.source(), nats_broker.put))


def test_the_stream_drops_a_message_that_is_sent_again(url: str) -> None:
    """R123: by its id."""

    async def main() -> None:
        sink = Nats(url, subject="orders")
        await sink.open()
        for _ in range(2):
            assert await sink.send([Message("same", b"1")]) == [None]
        await sink.close()

    asyncio.run(main())
    assert [one.id for one in nats_broker.sent()] == ["same"]


def test_outcomes_of_the_server_are_told_apart(url: str) -> None:
    """R055, R124: a message that is too large, for the stream or for the server, or whose subject
    nobody stores, is bad; the others are sent. A subject of all messages that nobody stores is an
    outage."""

    async def main() -> list[Any]:
        sink = Nats(url, subject=lambda m: m.headers["to"])
        messages = [
            Message("ok", b"1", headers={"to": "orders.new"}),
            Message("nobody", b"1", headers={"to": "nowhere"}),
            Message("for the stream", b"x" * 200_000, headers={"to": "orders"}),
            Message("for the server", b"x" * 2_000_000, headers={"to": "orders"}),
            Message("name", b"1", headers={"to": "two words"}),
            Message("last", b"1", headers={"to": "orders"}),
        ]
        await sink.open()
        outcomes = list(await sink.send(messages))
        await sink.close()
        fixed = Nats(url, subject="nowhere")
        await fixed.open()
        with pytest.raises(SinkDown, match="no stream stores the subject 'nowhere'"):
            await fixed.send([Message("any", b"1")])
        await fixed.close()
        return outcomes

    outcomes = asyncio.run(main())
    assert [type(one) for one in outcomes] == [type(None), Bad, Bad, Bad, Bad, type(None)]
    assert "no stream stores" in outcomes[1].reason and "exceeds" in outcomes[2].reason
    assert {one.id for one in nats_broker.sent()} == {"ok", "last"}


async def test_messages_of_others_become_jobs(ol: Outlast, url: str) -> None:
    """R130: their place in the stream is their id, on each delivery."""
    import nats

    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    client = await nats.connect(url)
    for n in range(3):
        await client.jetstream().publish("mail.new", b"%d" % n)
    source = Nats(url, subject="mail.>", durable="sync", ack_wait=0.5)
    await source.open()
    first = {one.raw: one.id for one in await source.receive(10, 5.0)}
    await source.close()  # without an acknowledgement
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: len(seen) == 3)
        await aeventually(lambda: ol.sources() and ol.sources()[0].lag == 0, timeout=20)
    assert {job.key for job in ol.jobs()} == {f"in:mail:{id}" for id in first.values()}
    assert sorted(first) == [b"0", b"1", b"2"]
    await client.close()


def test_ids_that_are_no_text_are_not_taken_for_one(url: str) -> None:
    """R123: the client library reads each such byte as U+FFFD. A redelivery has the same id."""
    for n, id in enumerate((b"\xff", b"\xfe")):
        nats_broker.put_headers(b"Nats-Msg-Id: " + id, b"%d" % n)

    async def main() -> list[dict[bytes, str]]:
        source, rounds = nats_broker.source(), []
        await source.open()
        try:
            for _ in range(2):
                found: dict[bytes, Message] = {}
                while len(found) < 2:
                    found |= {one.raw: one for one in await source.receive(10, 5.0)}
                await source.hand_back(list(found.values()))
                rounds.append({raw: one.id for raw, one in found.items()})
        finally:
            await source.close()
        return rounds

    first, again = asyncio.run(main())
    assert first == again and len(set(first.values())) == 2


@pytest.mark.kinds("sqlite")
def test_a_server_that_is_away_costs_nothing(ol: Outlast, url: str) -> None:
    """R054, R223: no attempt, no dead message, order per key."""
    with Proxy.before(url) as proxy:
        sink = Nats(proxy.url(url), subject="orders")
        check_away(ol, sink, proxy.refuse, proxy.accept, nats_broker.sent)


async def test_a_source_waits_for_its_server(ol: Outlast, url: str) -> None:
    """R014: the loop says so, and goes on by itself; what it held is delivered again."""
    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    with Proxy.before(url) as proxy:
        source = Nats(proxy.url(url), subject="mail", durable="sync", ack_wait=1.0)
        ol.source("mail", source, task=sync, wait=20)
        async with work(ol):
            await asyncio.to_thread(nats_broker.put, [Message("a", b"1")])
            await aeventually(lambda: seen == [1])
            proxy.refuse()
            await aeventually(lambda: ol.sources() and ol.sources()[0].error)
            await asyncio.to_thread(nats_broker.put, [Message("b", b"2")])
            proxy.accept()
            await aeventually(lambda: seen == [1, 2], timeout=30)


def test_bad_options_are_refused() -> None:
    url = "nats://127.0.0.1:4222"
    for wrong in (
        lambda: Nats("127.0.0.1:4222", subject="s"),
        lambda: Nats(url, subject=""),
        lambda: Nats(url, subject=lambda m: "s", durable="d"),
        lambda: Nats(url, subject="s", durable="a.b"),
        lambda: Nats(url, subject="s", ack_wait=0),
    ):
        with pytest.raises(InvalidOption):
            wrong()


def test_no_password_is_shown() -> None:
    sink = Nats("nats://u:hunter2@one:4222,nats://u:hunter2@two:4222", subject="s", durable="d")
    assert repr(sink) == "NATS nats://one:4222,nats://two:4222, subject s, durable d"
