"""What a broker has to offer: `Sink` takes messages of an outbox, `Source` gives messages.

Both are asyncio: a client that blocks is called with `asyncio.to_thread`. One object may be both.
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
    """Raise in `open` or `send`: the broker is away, whichever message is sent. No attempt is
    spent; the outbox stops calling, and one message at a time probes it."""


@dataclass(frozen=True, slots=True)
class Bad:
    """This message can never be sent: it is dead at once, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """This message was not sent, and may be the next time: it is retried alone, not before `after`
    seconds."""

    reason: str
    after: float = 0.0


SendOutcome = Bad | Retry | None  # None: the broker has it


@dataclass(frozen=True, slots=True)
class Limits:
    """What one `send` may be given.

    `parallel` sends may be under way at once. Of the messages with one key, a `send` is given one
    at a time, unless the sink `keeps_order`: then it has to send those of a key in order, and none
    after one that failed.
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
    """Takes the messages of an outbox."""

    @property
    def limits(self) -> Limits:
        """What one `send` may be given."""

    async def open(self) -> None:
        """Connect. `SinkDown`, if the broker is away."""

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """Send messages, and return when the broker has them: what became of each, by position.

        `SinkDown` says that none of them could be sent; so does a `ConnectionError` or
        `TimeoutError`, if both halves of the messages fail as well. (If one message alone is sent
        in time, the sink is slow, and is given fewer at once.) Any other error is taken for the
        fault of a message, and the messages are sent in halves until it is found. Each may be
        sent again later, with the same id."""

    async def close(self) -> None:
        """Disconnect; also after an `open` that failed."""


@runtime_checkable
class Source(Protocol):
    """Gives messages. A message that is not acknowledged comes again."""

    @property
    def redelivery(self) -> float:
        """Seconds after its first delivery for which a message may come again."""

    async def open(self) -> None:
        """Connect."""

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """Wait up to `wait` seconds for up to `limit` messages. It may be cancelled: a message that
        was not returned comes again."""

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """They are stored: never deliver them again."""

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """They were not stored: deliver them again, to anybody, at once."""

    async def lag(self) -> int | None:
        """Messages that wait at the broker, as far as it can tell; None: it cannot."""

    async def close(self) -> None:
        """Disconnect; also after an `open` that failed."""
