"""SNS: a topic as a sink. Standard and FIFO topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..model.errors import InvalidOption
from .aws import (
    BATCH,
    DEFAULT_LIMITS,
    MAX_BYTES,
    AwsClient,
    Entry,
    fifo_fields,
    send_in_calls,
)
from .protocols import Limits, Message, SendOutcome


class Sns:
    """`Sns("arn:aws:sns:eu-west-1:1234:orders")` for an outbox. Headers are message attributes, for
    filter policies; turn raw message delivery on for queues that an Outlast source reads."""

    def __init__(
        self,
        topic_arn: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        session: object = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        parts = topic_arn.split(":") if isinstance(topic_arn, str) else []
        if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sns":
            reason = "must be like arn:aws:sns:eu-west-1:123456789012:name"
            raise InvalidOption(option="topic_arn", reason=reason)
        self._topic = topic_arn
        self._fifo = topic_arn.endswith(".fifo")
        self.limits = replace(limits, items=min(limits.items, BATCH))
        self._client = AwsClient("sns", endpoint, region or parts[3] or None, session)

    async def open(self) -> None:
        await self._client.open(self.limits.parallel)

    async def close(self) -> None:
        self._client.close()

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """PublishBatch, with an outcome for each entry."""

        async def call(entries: list[tuple[int, Entry]]) -> dict[str, Any]:
            given = [self._entry(messages[position], position, one) for position, one in entries]
            return await self._client.call(
                "publish_batch", TopicArn=self._topic, PublishBatchRequestEntries=given
            )

        return await send_in_calls(messages, MAX_BYTES, call)

    def _entry(self, message: Message, position: int, entry: Entry) -> dict[str, object]:
        return {
            "Id": str(position),
            "Message": entry.body,
            "MessageAttributes": entry.attributes,
            **(fifo_fields(message) if self._fifo else {}),
        }

    def __repr__(self) -> str:
        return f"SNS {self._topic}"
