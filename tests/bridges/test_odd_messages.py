"""Messages that nobody foresaw: one of them neither stops a source nor punishes a batch."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from importlib import import_module
from typing import Any

import pytest

from outlast import Outlast
from outlast.bridges import Bad, Kafka, Message, Nats, Rabbit, Redis, Retry, Sqs
from outlast.bridges.aws import entry_of, message_of
from outlast.bridges.wire_headers import HEADERS, from_wire
from outlast.model.options import Options
from outlast.task import BoundTask
from tests.bridges import sqs_broker
from tests.bridges.own_bridges import ListSink, QueueSource
from tests.support import aeventually
from tests.support.redis import RedisServer
from tests.worker.working import work


@pytest.mark.parametrize(
    "item",
    [
        {"value": 1, "headers": {"attempt": 1}},
        {"value": 1, "headers": ["a"]},
        {"value": 1, "key": 7},
        {"bytes": "no base 64"},
        {"bytes": 7},
    ],
)
async def test_a_stored_message_that_cannot_be_sent_is_dead_alone(
    ol: Outlast, item: dict[str, Any]
) -> None:
    """R013, R055: another program may have enqueued it; the others of its batch are sent."""
    sink = ListSink()
    orders = ol.outbox("orders", sink)
    jobs = ol.enqueue(*(orders.message(n) for n in range(20)), _stored(ol, item))
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 20 and ol.counts()["dead"] == 1)
    dead = ol.job(jobs[20].id)
    assert (dead.state, dead.attempt) == ("dead", 1)
    assert "is not a message of an outbox" in (dead.error or {})["message"]
    assert sorted(sink.bodies()) == list(range(20))  # type: ignore[type-var]


def _stored(ol: Outlast, item: dict[str, Any]) -> Any:
    """A job of the outbox, as a client of the service may enqueue it."""
    definition = ol.declared_outboxes["orders"]._definitions[False]
    return BoundTask(ol, definition, Options(), None).job(item)


@pytest.mark.kinds("sqlite")
async def test_headers_that_are_no_text_are_stored_as_text(ol: Outlast) -> None:
    """R013: of a source of a user's own."""

    @ol.task
    async def sync(body: int) -> None: ...

    odd: Any = {"attempt": 7, "none": None, 3: "three"}
    source = QueueSource(Message("odd", b"1", 5, odd), Message("good", b"2"))  # type: ignore[arg-type]
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 2)
    (job,) = [job for job in ol.jobs() if job.key == "in:mail:odd"]
    assert job.args["$message"]["headers"] == {"attempt": "7", "none": "None", "3": "three"}
    assert job.args["$message"]["key"] == "5"


@pytest.mark.kinds("sqlite")
async def test_messages_without_an_id_are_not_taken_for_one(ol: Outlast) -> None:
    """R123: none is lost; a redelivery is another job."""
    seen: list[int] = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    source = QueueSource(*(Message("", b"%d" % n) for n in range(3)))
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: len(source.acknowledged) == 3)
        await aeventually(lambda: sorted(seen) == [0, 1, 2])


@pytest.mark.parametrize("packed", ["[" * 200_000, "{}[", "7", '{"a": ' * 200_000, "\ud800"])
def test_packed_headers_of_others_are_kept_as_they_are(packed: str) -> None:
    """R013: whatever they are, the message can be read."""
    assert from_wire({HEADERS: packed, "kind": "new"}) == (None, {HEADERS: packed, "kind": "new"})


def test_a_body_that_only_claims_to_be_base64_is_kept_as_it_is() -> None:
    """R013: SQS; it becomes a dead job, and the source goes on."""
    claim = {"outlast-encoding": {"DataType": "String", "StringValue": "base64"}}
    received = {"MessageId": "m", "ReceiptHandle": "r", "Body": "ü, no base64"}
    found = message_of({**received, "MessageAttributes": claim})
    assert found.raw == "ü, no base64".encode()


def test_a_header_with_a_name_of_ours_changes_no_body() -> None:
    """SQS: of a message that is sent and received by us."""
    sent = Message("m", b"dGV4dA==", None, {"outlast-encoding": "base64"})
    entry = entry_of(sent, 10_000)
    assert not isinstance(entry, Bad)
    received = {"MessageId": "m", "ReceiptHandle": "r", "Body": entry.body}
    assert message_of({**received, "MessageAttributes": entry.attributes}) == sent


async def test_a_sorted_set_keeps_bytes_that_are_no_text(redis: RedisServer) -> None:
    """R123: in base 64, and it says so."""
    import redis as client

    sink = Redis(redis.url, zset="orders")
    await sink.open()
    assert await sink.send([Message("b", b"\xff\x00"), Message("t", b"\\xff")]) == [None, None]
    await sink.close()
    with client.Redis.from_url(redis.url) as connection:
        members = {one["id"]: one for one in map(json.loads, connection.zrange("orders", 0, -1))}
    assert members["t"]["body"] == "\\xff" and "encoding" not in members["t"]
    assert members["b"]["encoding"] == "base64"
    assert base64.b64decode(members["b"]["body"]) == b"\xff\x00"


def test_messages_that_were_received_are_not_lost_to_a_later_poll_that_fails(
    aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQS gives ten at a time: those that came are stored now, not after their visibility."""
    from botocore.exceptions import EndpointConnectionError

    sqs_broker.put([Message(f"m{n}", b"1") for n in range(30)])

    async def main() -> list[Message]:
        source = sqs_broker.source()
        receive = source._receive
        calls = iter([receive, receive])

        def failing(*given: Any) -> list[dict[str, Any]]:
            one = next(calls, None)
            if one is None:
                raise EndpointConnectionError(endpoint_url=aws)
            return one(*given)

        monkeypatch.setattr(source, "_receive", failing)
        await source.open()
        try:
            return list(await source.receive(100, 1.0))
        finally:
            await source.close()

    assert len(asyncio.run(main())) == 20


def test_a_visibility_below_a_second_is_not_none(aws: str) -> None:
    """SQS takes whole seconds: 0 would give a message to two at once."""
    sqs_broker.put([Message("m", b"1")])

    async def main() -> None:
        source = Sqs(sqs_broker.queue_url("mail"), visibility=0.5)
        await source.open()
        assert len(await source.receive(10, 1.0)) == 1
        assert len(await source.receive(10, 0.0)) == 0
        await source.close()

    asyncio.run(main())


@pytest.mark.parametrize("broker", ["redis", "rabbit", "nats", "kafka"], indirect=True)
def test_a_message_whose_name_cannot_be_told_has_no_other_sent_twice(broker: str) -> None:
    """R055: the function of the message is the user's own; it raises, or returns something else."""

    def target(message: Message) -> Any:
        return {"odd": None}.get(message.id, "orders") if message.id != "worse" else 1 / 0

    sinks = {
        "redis": lambda: Redis(os.environ["OUTLAST_TEST_REDIS"], stream=target),
        "rabbit": lambda: Rabbit(
            os.environ["OUTLAST_TEST_RABBIT"], exchange="", routing_key=target
        ),
        "nats": lambda: Nats(os.environ["OUTLAST_TEST_NATS"], subject=target),
        "kafka": lambda: Kafka(os.environ["OUTLAST_TEST_KAFKA"], topic=target),
    }

    async def main() -> list[Any]:
        sink: Any = sinks[broker]()
        await sink.open()
        try:
            return list(
                await sink.send([Message(id, b"1") for id in ("a", "odd", "b", "worse", "c")])
            )
        finally:
            await sink.close()

    outcomes = asyncio.run(main())
    assert [type(one) for one in outcomes] == [type(None), Retry, type(None), Retry, type(None)]
    assert "ZeroDivisionError" in outcomes[3].reason and "returned None" in outcomes[1].reason
    module = import_module(f"tests.bridges.{broker}_broker")
    assert sorted(one.id for one in module.sent()) == ["a", "b", "c"]
