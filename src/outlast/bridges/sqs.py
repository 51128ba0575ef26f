"""SQS: a queue as a sink and as a source. Standard and FIFO queues.

A message is sent with the attributes `outlast-id`, `outlast-key` and its headers. On a FIFO queue
(`….fifo`) the key is its MessageGroupId and the id its MessageDeduplicationId.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from ..model.errors import InvalidOption
from ..model.options import seconds
from .aws import (
    BATCH,
    DEFAULT_LIMITS,
    MAX_BYTES,
    AwsClient,
    Entry,
    check_bytes,
    fifo_fields,
    in_daemon_thread,
    message_of,
    outages,
    send_in_calls,
)
from .protocols import DEFAULT_REDELIVERY_S, Limits, Message, SendOutcome, SinkDown

LONGEST_POLL_S = 20.0  # of SQS
MAX_VISIBILITY_S = 43_200.0
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class Sqs:
    """`Sqs("https://sqs.eu-west-1.amazonaws.com/1234/orders")`, for an outbox or a source.

    A message that is not acknowledged is delivered again after `visibility` seconds; None: the
    queue's setting. `max_bytes` is the queue's limit for one call. Credentials and region are those
    of `session`, a boto3.Session, or of the environment."""

    def __init__(  # noqa: PLR0913 - each is an option of the queue
        self,
        queue_url: str,
        *,
        visibility: float | None = None,
        redelivery: float = DEFAULT_REDELIVERY_S,
        max_bytes: int = MAX_BYTES,
        endpoint: str | None = None,
        region: str | None = None,
        session: object = None,
        limits: Limits | None = None,
    ) -> None:
        host = _checked_host(queue_url)
        self._url = queue_url
        self._fifo = queue_url.endswith(".fifo")
        self._visibility = seconds("visibility", visibility)
        if self._visibility is not None and self._visibility > MAX_VISIBILITY_S:
            reason = f"must be at most {MAX_VISIBILITY_S:g} seconds, not {visibility!r}"
            raise InvalidOption(option="visibility", reason=reason)
        self.redelivery = seconds("redelivery", redelivery) or 0.0
        self._max_bytes = check_bytes(max_bytes)
        given = limits or replace(DEFAULT_LIMITS, bytes=max_bytes)
        self.limits = replace(given, items=min(given.items, BATCH))
        if endpoint is None and not _is_aws(host):
            endpoint = "{0.scheme}://{0.netloc}".format(urlsplit(queue_url))
        self._client = AwsClient("sqs", endpoint, region or _region_of(host), session)

    async def open(self) -> None:
        await self._client.open(self.limits.parallel)

    async def close(self) -> None:
        self._client.close()

    # Sink

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """SendMessageBatch, with an outcome for each entry."""

        async def call(entries: list[tuple[int, Entry]]) -> dict[str, Any]:
            given = [self._entry(messages[position], position, one) for position, one in entries]
            return await self._client.call("send_message_batch", QueueUrl=self._url, Entries=given)

        return await send_in_calls(messages, self._max_bytes, call)

    def _entry(self, message: Message, position: int, entry: Entry) -> dict[str, object]:
        return {
            "Id": str(position),
            "MessageBody": entry.body,
            "MessageAttributes": entry.attributes,
            **(fifo_fields(message) if self._fifo else {}),
        }

    # Source

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """One long poll, then short polls while there are more messages."""
        boto = self._client.boto

        def poll(abandoned: threading.Event) -> list[dict[str, Any]]:
            found = self._receive(boto, min(limit, BATCH), min(wait, LONGEST_POLL_S))
            while found and len(found) % BATCH == 0 and len(found) < limit:
                if abandoned.is_set():
                    break
                try:
                    more = self._receive(boto, min(limit - len(found), BATCH), 0.0)
                except Exception:  # the next call raises it; received messages are stored first
                    break
                found += more
                if not more:
                    break
            if abandoned.is_set():
                with suppress(Exception):  # SQS delivers them again later
                    self._hand_back(boto, [one["ReceiptHandle"] for one in found])
            return found

        with outages():
            return [message_of(one) for one in await in_daemon_thread(poll)]

    def _receive(self, boto: Any, limit: int, wait: float) -> list[dict[str, Any]]:
        given: dict[str, Any] = {"QueueUrl": self._url, "MaxNumberOfMessages": limit}
        if self._visibility is not None:
            given["VisibilityTimeout"] = ceil(self._visibility)
        answer = boto.receive_message(
            WaitTimeSeconds=ceil(wait),
            MessageAttributeNames=["All"],
            AttributeNames=["MessageGroupId"],
            **given,
        )
        return list(answer.get("Messages", ()))

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """DeleteMessageBatch. A message that could not be deleted is delivered again, with a known
        key."""
        receipts = [one.receipt for one in messages]
        await asyncio.gather(
            *(
                self._client.call("delete_message_batch", QueueUrl=self._url, Entries=entries)
                for entries in _by_ten(receipts)
            )
        )

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """Make messages visible at once."""
        boto, receipts = self._client.boto, [one.receipt for one in messages]
        with outages():
            await in_daemon_thread(lambda abandoned: self._hand_back(boto, receipts))

    def _hand_back(self, boto: Any, receipts: Sequence[str]) -> None:
        for entries in _by_ten(receipts):
            now = [{**entry, "VisibilityTimeout": 0} for entry in entries]
            boto.change_message_visibility_batch(QueueUrl=self._url, Entries=now)

    async def lag(self) -> int | None:
        """The number of messages; None without the permission for GetQueueAttributes."""
        try:
            answer = await self._client.call(
                "get_queue_attributes", QueueUrl=self._url, AttributeNames=list(COUNTS)
            )
        except SinkDown:
            return None
        return sum(int(answer["Attributes"].get(name, 0)) for name in COUNTS)

    def __repr__(self) -> str:
        return f"SQS {self._url}"


def _by_ten(receipts: Sequence[str]) -> list[list[dict[str, object]]]:
    return [
        [
            {"Id": str(position), "ReceiptHandle": receipt}
            for position, receipt in enumerate(receipts[start : start + BATCH])
        ]
        for start in range(0, len(receipts), BATCH)
    ]


def _checked_host(url: object) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        reason = "must be like https://sqs.eu-west-1.amazonaws.com/123456789012/name"
        raise InvalidOption(option="queue_url", reason=reason)
    return parts.hostname


def _is_aws(host: str) -> bool:
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _region_of(host: str) -> str | None:
    """sqs.REGION.amazonaws.com"""
    parts = host.split(".")
    return parts[1] if _is_aws(host) and parts[0] == "sqs" and len(parts) > 3 else None
