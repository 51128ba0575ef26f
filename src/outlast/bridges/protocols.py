"""Protocols of brokers: a `Sink` sends the messages of an outbox, a `Source` receives messages.

Both are asyncio: call a blocking client with `asyncio.to_thread`. One object may be both.
`open` is called before the first message, in the event loop of the worker, and again after `close`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..model.errors import DependencyDown, InvalidOption
from ..model.message import Message

__all__ = ["Bad", "Limits", "Message", "Retry", "SendOutcome", "Sink", "SinkDown", "Source"]

DEFAULT_REDELIVERY_S = 86_400.0


class SinkDown(DependencyDown):
    """Raise in `open` or `send`: the broker is unavailable for all messages. No attempt is spent;
    the outbox stops sending, and probes the broker with one message at a time."""


@dataclass(frozen=True, slots=True)
class Bad:
    """This message can never be sent: it is dead at once, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """This message was not sent: it is retried alone, after at least `after` seconds."""

    reason: str
    after: float = 0.0


SendOutcome = Bad | Retry | None  # None: the broker has accepted it


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one `send`.

    Up to `parallel` sends may run at once. A `send` gets at most one message of each key, unless
    the sink `keeps_order`: then it must send the messages of a key in order, and none after a
    failed one.
    """

    items: int = 1000
    bytes: int = 1_000_000  # of all messages together: bodies, keys and headers
    parallel: int = 1
    keeps_order: bool = False

    def __post_init__(self) -> None:
        for name in ("items", "bytes", "parallel"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                reason = f"must be a whole number from 1, not {value!r:.80}"
                raise InvalidOption(option=f"limits.{name}", reason=reason)


@runtime_checkable
class Sink(Protocol):
    """Sends the messages of an outbox."""

    @property
    def limits(self) -> Limits:
        """Limits of one `send`."""

    async def open(self) -> None:
        """Connect. Raise `SinkDown` if the broker is unavailable."""

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """Send messages, and return when the broker has accepted them: the outcomes, by position.

        `SinkDown` means that none of them could be sent; so does a `ConnectionError` or
        `TimeoutError`, if both halves of the messages fail as well. (If one message alone is sent
        in time, the sink is slow, and gets fewer messages at once.) Any other error counts as the
        fault of a message, and the messages are sent in halves until it is found. Each may be
        sent again later, with the same id."""

    async def close(self) -> None:
        """Disconnect; also called after an `open` that failed."""


@runtime_checkable
class Source(Protocol):
    """Receives messages. A message that is not acknowledged is delivered again."""

    @property
    def redelivery(self) -> float:
        """Seconds after its first delivery in which a message may be delivered again."""

    async def open(self) -> None:
        """Connect."""

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """Wait up to `wait` seconds for up to `limit` messages. The call may be cancelled: a
        message that was not returned is delivered again."""

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """These messages are stored: do not deliver them again."""

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """These messages were not stored: deliver them again at once, to any consumer."""

    async def lag(self) -> int | None:
        """The number of messages that wait at the broker; None if unknown."""

    async def close(self) -> None:
        """Disconnect; also called after an `open` that failed."""
