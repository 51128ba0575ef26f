"""SNS for the kill tests: the topic `orders.fifo` (sink), read from a queue that subscribed to it;
the source is SQS."""

from __future__ import annotations

import os

from outlast.bridges import Sns
from tests.bridges.sqs_broker import ACCOUNT, PER_TURN, client, left, put, sent, source

__all__ = ["PER_TURN", "create", "left", "put", "sent", "sink", "source"]


def topic_arn(name: str) -> str:
    return f"arn:aws:sns:us-east-1:{ACCOUNT}:{name}"


def sink() -> Sns:
    return Sns(topic_arn("orders.fifo"), endpoint=os.environ["OUTLAST_TEST_SQS"])


def create(name: str) -> str:
    """A new topic, with raw delivery to the queue of the same name."""
    sns = client("sns")
    sns.delete_topic(TopicArn=topic_arn(name))
    topic = str(sns.create_topic(Name=name, Attributes={"FifoTopic": "true"})["TopicArn"])
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}",
        Attributes={"RawMessageDelivery": "true"},
    )
    return topic
