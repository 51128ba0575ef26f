"""SQS and SNS: against moto's server, and a stub for entries that fail one by one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from outlast import InvalidOption, Outlast
from outlast.bridges import Bad, Limits, Message, Retry, SinkDown, Sns, Sqs
from tests.bridges import sqs_broker
from tests.bridges.kill_checks import (
    check_away,
    check_cancelled_receive,
    check_round_trip,
)
from tests.bridges.sqs_broker import queue_url
from tests.support import Proxy, aeventually, eventually
from tests.worker.working import work

pytestmark = pytest.mark.usefixtures("credentials")


class Stub:
    """SQS as far as SendMessageBatch: `failures` has the answers for bodies that fail."""

    def __init__(self, failures: dict[str, dict[str, Any]]) -> None:
        self.calls: list[list[dict[str, Any]]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                entries = json.loads(text)["Entries"]
                stub.calls.append(entries)
                failed = [
                    {"Id": one["Id"], **failures[one["MessageBody"]]}
                    for one in entries
                    if one["MessageBody"] in failures
                ]
                sent = [
                    {"Id": one["Id"], "MessageId": one["Id"], "MD5OfMessageBody": ""}
                    for one in entries
                    if one["MessageBody"] not in failures
                ]
                answer = json.dumps({"Successful": sent, "Failed": failed}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *given: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/123456789012/orders"
        self._thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self) -> Stub:
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def test_what_is_received_is_what_was_sent(aws: str) -> None:
    """R123: body, key, headers and id, whatever is in them."""
    source = Sqs(queue_url("mail"), visibility=60)
    asyncio.run(check_round_trip(Sqs(queue_url("mail")), source))


def test_a_cancelled_receive_loses_nothing(aws: str) -> None:
    """R182: what the abandoned poll is given is visible again at once."""
    source = Sqs(queue_url("mail"), visibility=3600)
    asyncio.run(check_cancelled_receive(source, sqs_broker.put))


async def test_entries_that_fail_are_told_by_position(ol: Outlast) -> None:
    """R055, R124: of 25, in calls of ten, one is dead with its error, one is retried and sent."""
    bad = {"SenderFault": True, "Code": "InvalidMessageContents", "Message": "no"}
    busy = {"SenderFault": True, "Code": "KmsThrottled", "Message": "later"}
    failures = {"7": bad, "13": busy}
    with Stub(failures) as stub:
        orders = ol.outbox("orders", Sqs(stub.url))
        jobs = ol.enqueue(*(orders.message(n) for n in range(25)))
        async with work(ol):
            await aeventually(lambda: ol.counts()["succeeded"] == 23 and ol.counts()["dead"] == 1)
            del failures["13"]
            await aeventually(lambda: ol.counts()["succeeded"] == 24, timeout=30)
    assert "InvalidMessageContents: no" in (ol.job(jobs[7].id).error or {})["message"]
    assert ol.job(jobs[13].id).failures >= 1
    assert sorted(map(len, stub.calls))[-1] == 10
    times = [one["MessageBody"] for call in stub.calls for one in call]
    assert all(times.count(str(n)) == 1 for n in range(25) if n != 13), "others are sent once"


def test_outcomes_are_told_apart(aws: str) -> None:
    """A message that is too large or empty is bad; a queue that does not exist is an outage."""

    async def main() -> list[Any]:
        sink = Sqs(queue_url("orders"))
        large = [Message(f"{n}", b"x" * 100_000) for n in range(5)]
        odd = [Message("empty", b""), Message("large", b"x" * 262_144), Message("ok", b"1")]
        await sink.open()
        outcomes = list(await sink.send([*large, *odd]))
        await sink.close()
        absent = Sqs(queue_url("absent"))
        await absent.open()
        with pytest.raises(SinkDown, match=r"NonExistentQueue|does not exist"):
            await absent.send([Message("any", b"1")])
        await absent.close()
        return outcomes

    outcomes = asyncio.run(main())
    assert outcomes[:5] == [None] * 5, "two calls: one would be too large"
    assert [type(one) for one in outcomes[5:]] == [Bad, Bad, type(None)]
    assert sqs_broker.left("orders") == 6


def test_a_fifo_queue_gets_groups_and_drops_repeats(aws: str) -> None:
    """R123: the key is the group, and the id the deduplication id."""

    async def main() -> None:
        sink = Sqs(queue_url("orders.fifo"))
        messages = [Message("a", b"1", "k"), Message("b", b"2"), Message("c", b"3", "k é" * 60)]
        await sink.open()
        for _ in range(2):
            assert await sink.send(messages) == [None] * 3
        await sink.close()

    asyncio.run(main())
    found = sqs_broker.client().receive_message(
        QueueUrl=queue_url("orders.fifo"), MaxNumberOfMessages=10, AttributeNames=["All"]
    )["Messages"]
    groups = [one["Attributes"]["MessageGroupId"] for one in found]
    assert groups[:2] == ["k", "b"] and len(groups[2]) == 64
    assert [one["Attributes"]["MessageDeduplicationId"] for one in found] == ["a", "b", "c"]


def test_a_topic_reaches_its_queue(aws: str) -> None:
    """R123: SNS, with raw message delivery, to a queue that a source reads."""
    sns = sqs_broker.client("sns")
    topic = sns.create_topic(Name="shop")["TopicArn"]
    queue = "arn:aws:sqs:us-east-1:123456789012:mail"
    sns.subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "true"}
    )

    async def main() -> list[Message]:
        sink = Sns(topic, endpoint=aws)
        await sink.open()
        messages = [Message(f"m{n}", b"%d" % n, None, {"kind": "new"}) for n in range(12)]
        for start in (0, 10):
            assert await sink.send(messages[start : start + 10]) == [None] * len(
                messages[start : start + 10]
            )
        assert isinstance((await sink.send([Message("large", b"x" * 300_000)]))[0], Bad)
        await sink.close()
        source = Sqs(queue_url("mail"), visibility=60)
        await source.open()
        found = list(await source.receive(100, 5.0))
        await source.acknowledge(found)
        await source.close()
        return found

    found = asyncio.run(main())
    assert sorted(one.id for one in found) == sorted(f"m{n}" for n in range(12))
    assert found[0].headers == {"kind": "new"} and sqs_broker.left() == 0


async def test_messages_of_others_become_jobs(ol: Outlast, aws: str) -> None:
    """R026, R130: their MessageId is their id; deleted after the commit, more than ten at once."""
    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    sqs = sqs_broker.client()
    ids = {
        sqs.send_message(QueueUrl=queue_url("mail"), MessageBody=str(n))["MessageId"]
        for n in range(25)
    }
    ol.source("mail", Sqs(queue_url("mail")), task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: len(seen) == 25)
        await aeventually(lambda: sqs_broker.left() == 0)
    assert {job.key for job in ol.jobs(limit=50)} == {f"in:mail:{id}" for id in ids}


async def test_a_worker_that_stops_does_not_wait_for_a_long_poll(ol: Outlast, aws: str) -> None:
    """R182."""

    @ol.task
    async def sync(body: int) -> None: ...

    ol.source("mail", Sqs(queue_url("mail")), task=sync, wait=20)
    async with work(ol):
        await aeventually(lambda: any(t.name == "long poll" for t in threading.enumerate()))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    sqs_broker.put([Message("late", b"1")])  # ends the abandoned poll
    eventually(lambda: not any(t.name == "long poll" for t in threading.enumerate()), 30)
    # Handed back by the poll that nobody waits for: it is visible.
    answer = sqs_broker.client().receive_message(QueueUrl=queue_url("mail"), WaitTimeSeconds=2)
    assert [one["Body"] for one in answer["Messages"]] == ["1"]


@pytest.mark.kinds("sqlite")
def test_a_service_that_is_away_costs_nothing(ol: Outlast, aws: str) -> None:
    """R054, R223: no attempt, no dead message, order per key."""
    url = queue_url("orders.fifo")
    with Proxy.before(aws) as proxy:
        sink = Sqs(proxy.url(url))
        check_away(ol, sink, proxy.refuse, proxy.accept, sqs_broker.sent, number=100)


def test_bad_options_are_refused() -> None:
    url = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
    for wrong in (
        lambda: Sqs("orders"),
        lambda: Sqs(url, visibility=50_000),
        lambda: Sqs(url, max_bytes=10),
        lambda: Sns("orders"),
        lambda: Sns("arn:aws:sqs:eu-west-1:123456789012:orders"),
    ):
        with pytest.raises(InvalidOption):
            wrong()


def test_a_call_is_never_larger_than_the_service_takes() -> None:
    url = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
    assert Sqs(url, max_bytes=1_048_576).limits.bytes == 1_048_576
    assert Sqs(url, limits=Limits(items=500, parallel=2)).limits == Limits(10, 1_000_000, 2)


def test_the_region_is_that_of_the_address() -> None:
    """Without a setting; a queue elsewhere is its own endpoint."""

    async def address(sqs: Sqs) -> str:
        await sqs.open()
        try:
            return str(sqs._client.boto.meta.endpoint_url)
        finally:
            await sqs.close()

    aws = Sqs("https://sqs.eu-west-1.amazonaws.com/123456789012/orders")
    assert asyncio.run(address(aws)) == "https://sqs.eu-west-1.amazonaws.com"
    assert asyncio.run(address(Sqs("http://localhost:9324/000000000000/q"))) == (
        "http://localhost:9324"
    )


def test_answers_are_told_apart() -> None:
    """Throttling is not a fault of the sender, whatever the answer says."""
    from outlast.bridges.aws import outcomes_of

    failed = [
        {"Id": "1", "SenderFault": True, "Code": "InvalidMessageContents", "Message": "x"},
        {"Id": "2", "SenderFault": False, "Code": "InternalError", "Message": "x"},
        {"Id": "3", "SenderFault": True, "Code": "RequestThrottled", "Message": "x"},
    ]
    found = outcomes_of({"Successful": [{"Id": "0"}], "Failed": failed}, [0, 1, 2, 3, 4])
    assert [type(found[n]) for n in range(5)] == [type(None), Bad, Retry, Retry, Retry]
