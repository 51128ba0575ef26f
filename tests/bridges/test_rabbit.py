"""RabbitMQ as a sink and a source, on a real server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outlast import InvalidOption, Outlast
from outlast.bridges import Bad, Message, Rabbit, Retry, SinkDown
from tests.bridges import rabbit_broker
from tests.bridges.kill_checks import (
    check_away,
    check_cancelled_receive,
    check_round_trip,
)
from tests.support import Proxy, aeventually
from tests.worker.working import work


@pytest.fixture
def url(rabbit_url: str) -> str:
    return rabbit_url


def test_what_is_received_is_what_was_sent(url: str) -> None:
    """R123: body, key, headers and id, whatever is in them."""
    asyncio.run(check_round_trip(Rabbit(url, queue="mail"), rabbit_broker.source()))


def test_a_cancelled_receive_loses_nothing(url: str) -> None:
    """R182."""
    asyncio.run(check_cancelled_receive(rabbit_broker.source(), rabbit_broker.put))


def test_outcomes_of_the_broker_are_told_apart(url: str) -> None:
    """R055, R124: a message that no queue takes is bad, one that a full queue rejects is retried;
    the others are sent. An exchange that does not exist is an outage."""
    import aio_pika

    async def declare(channel: Any) -> None:
        exchange = await channel.declare_exchange("shop", "topic")
        await (await channel.get_queue("orders")).bind(exchange, "order.*")
        await channel.queue_delete("small")
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        small = await channel.declare_queue("small", arguments=arguments)
        await small.bind(exchange, "small")
        await exchange.publish(aio_pika.Message(b"full"), "small")

    rabbit_broker.talk(declare)

    async def main() -> list[Any]:
        sink = Rabbit(url, exchange="shop", routing_key=lambda m: m.headers["to"])
        to = ("order.new", "nowhere", "small", "x" * 300, "order.old")
        await sink.open()
        outcomes = list(
            await sink.send([Message(str(n), b"1", None, {"to": one}) for n, one in enumerate(to)])
        )
        await sink.close()
        absent = Rabbit(url, exchange="absent", routing_key="x")
        await absent.open()
        for _ in range(2):  # its channel is opened anew
            with pytest.raises(SinkDown, match="NOT_FOUND"):
                await absent.send([Message("any", b"1")])
        await absent.close()
        return outcomes

    outcomes = asyncio.run(main())
    assert [type(one) for one in outcomes] == [type(None), Bad, Retry, Bad, type(None)]
    assert outcomes[1].reason == "exchange 'shop' has no queue for the routing key 'nowhere'"
    assert [one.id for one in rabbit_broker.sent()] == ["0", "4"]


async def test_one_unroutable_message_of_fifty_is_dead(ol: Outlast, url: str) -> None:
    """R055, R124: 49 sent, one dead with the reason."""
    sink = Rabbit(url, exchange="", routing_key=lambda m: "no" if m.body == 7 else "orders")
    orders = ol.outbox("orders", sink)
    jobs = ol.enqueue(*(orders.message(n) for n in range(50)))
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 49 and ol.counts()["dead"] == 1)
    assert "has no queue for the routing key 'no'" in (ol.job(jobs[7].id).error or {})["message"]


def test_the_prefetch_bounds_what_is_held(url: str) -> None:
    """R009: the rest stays with the broker, for others."""

    async def main() -> None:
        source = Rabbit(url, queue="mail", prefetch=5)
        await source.open()
        await asyncio.to_thread(rabbit_broker.put, [Message(f"m{n}", b"1") for n in range(20)])
        held = list(await source.receive(100, 5.0))
        while more := await source.receive(100, 0.3):
            held += more
        assert len(held) == 5 and await asyncio.to_thread(rabbit_broker.left) == 15
        await source.close()

        async def all_are_back() -> bool:
            return await asyncio.to_thread(rabbit_broker.left) == 20

        await aeventually(all_are_back)

    asyncio.run(main())


def test_messages_of_others_are_known_by_what_identifies_them(url: str) -> None:
    """R130: without a `message_id`, `identify` has the word; without both, each delivery is new."""
    import aio_pika

    async def put(channel: Any) -> None:
        body = aio_pika.Message(b"1", headers={"delivery": 7})
        await channel.default_exchange.publish(body, "mail")

    rabbit_broker.talk(put)

    async def received(**given: Any) -> Message:
        source = Rabbit(url, queue="mail", **given)
        await source.open()
        (message,) = await source.receive(10, 5.0)
        await source.close()
        return message

    assert asyncio.run(received(identify=lambda m: m.headers["delivery"])).id == "7"
    assert len({asyncio.run(received()).id for _ in range(2)}) == 1, "its client gave it an id"
    unknown = {asyncio.run(received(identify=lambda m: "")).id for _ in range(2)}
    assert len(unknown) == 2 and "" not in unknown


async def test_a_queue_that_is_deleted_is_an_error_of_the_source(ol: Outlast, url: str) -> None:
    """R014: told, and received from again once it is back."""
    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    async def delete(channel: Any) -> None:
        await channel.queue_delete("mail")

    ol.source("mail", Rabbit(url, queue="mail"), task=sync, wait=20)
    async with work(ol):
        await asyncio.to_thread(rabbit_broker.put, [Message("a", b"1")])
        await aeventually(lambda: seen == [1])
        await asyncio.to_thread(rabbit_broker.talk, delete)
        await aeventually(lambda: ol.sources() and ol.sources()[0].error)
        await asyncio.to_thread(rabbit_broker.create, "mail")
        await asyncio.to_thread(rabbit_broker.put, [Message("b", b"2")])
        await aeventually(lambda: seen == [1, 2], timeout=30)


@pytest.mark.kinds("sqlite")
def test_a_broker_that_is_away_costs_nothing(ol: Outlast, url: str) -> None:
    """R054, R223: no attempt, no dead message, order per key."""
    with Proxy.before(url) as proxy:
        sink = Rabbit(proxy.url(url), queue="orders")
        check_away(ol, sink, proxy.refuse, proxy.accept, rabbit_broker.sent)


def test_bad_options_are_refused() -> None:
    url = "amqp://127.0.0.1:5672/"
    for wrong in (
        lambda: Rabbit("127.0.0.1:5672", queue="q"),
        lambda: Rabbit(url),
        lambda: Rabbit(url, exchange="e", queue="q"),
        lambda: Rabbit(url, queue="q", routing_key="r"),
        lambda: Rabbit(url, queue="q", prefetch=0),
    ):
        with pytest.raises(InvalidOption):
            wrong()


def test_no_password_is_shown() -> None:
    url = "amqp://user:hunter2@localhost:5672/shop?x=hunter2"
    assert repr(Rabbit(url, queue="q")) == "RabbitMQ amqp://localhost:5672/shop, queue q"


def test_messages_of_one_route_wait_for_a_queue(ol: Outlast, url: str) -> None:
    """R054, R223: no message is at fault where none can be sent; not one is dead."""

    async def delete(channel: Any) -> None:
        await channel.queue_delete("orders")

    with ThreadPoolExecutor(1) as beside:  # the event loop
        check_away(
            ol,
            Rabbit(url, queue="orders"),
            lambda: beside.submit(rabbit_broker.talk, delete).result(),
            lambda: beside.submit(rabbit_broker.create, "orders").result(),
            rabbit_broker.sent,
        )


@pytest.mark.kinds("sqlite")
async def test_a_message_that_identify_fails_for_does_not_stop_the_source(
    ol: Outlast, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R013: it is known by its `message_id`; an id that is no text is taken as one."""
    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    def identify(message: Message) -> Any:
        return 7 if message.body == 2 else message.headers["delivery"]

    ol.source("mail", Rabbit(url, queue="mail", identify=identify), task=sync, wait=1)
    await asyncio.to_thread(rabbit_broker.put, [Message("a", b"1"), Message("b", b"2")])
    async with work(ol):
        await aeventually(lambda: sorted(seen) == [1, 2])
    assert sorted(job.key or "" for job in ol.jobs()) == ["in:mail:7", "in:mail:a"]
    assert "identify failed, so its message_id is its id: KeyError" in caplog.text
