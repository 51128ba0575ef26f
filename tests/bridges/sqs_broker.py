"""SQS for the kill tests: queues `orders.fifo` (sink) and `mail` (source)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import boto3

from outlast.bridges import Message, Sqs

PER_TURN = 10  # moto takes some twenty a second
ACCOUNT = "123456789012"
COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


def queue_url(name: str) -> str:
    return f"{os.environ['OUTLAST_TEST_SQS']}/{ACCOUNT}/{name}"


def client(service: str = "sqs") -> Any:
    session = boto3.session.Session(region_name="us-east-1")
    return session.client(service, endpoint_url=os.environ["OUTLAST_TEST_SQS"])


def sink() -> Sqs:
    return Sqs(queue_url("orders.fifo"))


def source() -> Sqs:
    return Sqs(queue_url("mail"), visibility=1)


def create(*names: str) -> None:
    """Empty queues."""
    sqs = client()
    for url in sqs.list_queues().get("QueueUrls", ()):
        sqs.delete_queue(QueueUrl=url)
    for name in names:
        fifo = {"Attributes": {"FifoQueue": "true"}} if name.endswith(".fifo") else {}
        sqs.create_queue(QueueName=name, **fifo)


def put(messages: Sequence[Message]) -> None:
    sqs = client()
    for start in range(0, len(messages), 10):
        entries = [
            {
                "Id": str(n),
                "MessageBody": one.raw.decode(),
                "MessageAttributes": {
                    "outlast-id": {"DataType": "String", "StringValue": one.id},
                },
            }
            for n, one in enumerate(messages[start : start + 10])
        ]
        sqs.send_message_batch(QueueUrl=queue_url("mail"), Entries=entries)


def sent(name: str = "orders.fifo") -> list[Message]:
    """They are gone then."""
    sqs, found = client(), []
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue_url(name), MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        if not (received := answer.get("Messages")):
            return found
        for one in received:
            given = {n: v["StringValue"] for n, v in one.get("MessageAttributes", {}).items()}
            id, key = given.pop("outlast-id"), given.pop("outlast-key", None)
            found.append(Message(id, one["Body"].encode(), key, given))
            sqs.delete_message(QueueUrl=queue_url(name), ReceiptHandle=one["ReceiptHandle"])


def left(name: str = "mail") -> int:
    answer = client().get_queue_attributes(QueueUrl=queue_url(name), AttributeNames=list(COUNTS))
    return sum(int(answer["Attributes"][count]) for count in COUNTS)
