"""One batch of an outbox: which messages go out together, and what became of each.

    messages ─▶ waves ─▶ chunks ─▶ send ──┬── outcome by position
                │         │               ├── SinkDown, connection error ── the rest is not sent
                │         │               └── any other error ───────────── sent in halves
                │         └ as many items and bytes as the sink takes
                └ one message of each key at a time, unless the sink keeps the order by itself

After a failure of a key its later messages are not sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from ..model.breaker import Breaker, outage_of
from ..model.errors import InvalidOption, NotAttempted, Permanent, RetryLater
from ..model.safe_text import error_summary
from .protocols import Bad, Limits, Message, Retry, SendOutcome, SinkDown

# Calls in a row that may fail as a whole before the sink is taken to be down: more than it takes
# to find one bad message among ten thousand.
MAX_FAILED_CALLS = 16

Send = Callable[[Sequence[Message]], Awaitable[Sequence[SendOutcome]]]
Failures = dict[int, BaseException]  # by the position of the message


class Numbered(NamedTuple):
    """A message and its position in the batch."""

    place: int
    message: Message


async def relay(
    messages: Sequence[Message], send: Send, limits: Limits, breaker: Breaker
) -> Failures:
    """Send messages; the errors of those that were not sent."""
    batch = _Relay(send, limits, breaker)
    await batch.send_all([Numbered(*pair) for pair in enumerate(messages)])
    return batch.failures


class _Relay:
    def __init__(self, send: Send, limits: Limits, breaker: Breaker) -> None:
        self._send = send
        self._limits = limits
        self._breaker = breaker
        self._failed_keys: set[str] = set()
        self._failed_calls = 0  # in a row
        self._down: SinkDown | None = None
        self.failures: Failures = {}

    async def send_all(self, batch: Sequence[Numbered]) -> None:
        for wave in waves(self._fitting(batch), keeps_order=self._limits.keeps_order):
            parts = list(chunks(wave, self._limits))
            for some in _groups(parts, self._limits.parallel):
                await asyncio.gather(*map(self._send_chunk, some))

    def _fitting(self, batch: Sequence[Numbered]) -> list[Numbered]:
        """All but those that are too large for any call."""
        most = self._limits.bytes
        for place, message in batch:
            if (size := message.size) > most:
                self._fail(place, message, Permanent(f"{size:,} bytes: the sink takes {most:,}"))
        return [one for one in batch if one.place not in self.failures]

    async def _send_chunk(self, chunk: Sequence[Numbered]) -> None:
        chunk = [one for one in chunk if self._is_next(one)]
        if not chunk:
            return
        try:
            outcomes = await self._send([message for _, message in chunk])
            if len(outcomes) != len(chunk):
                reason = f"returned {len(outcomes)} outcomes for {len(chunk)} messages"
                raise InvalidOption(option="send", reason=reason)
        except Exception as error:
            await self._failed(chunk, error)
            return
        self._failed_calls = 0
        for (place, message), outcome in zip(chunk, outcomes, strict=True):
            if outcome is not None:
                self._fail(place, message, _error_of(outcome))

    def _is_next(self, one: Numbered) -> bool:
        """Whether a message may be sent now."""
        if self._down is not None:
            self.failures[one.place] = self._down
        elif one.message.key is not None and one.message.key in self._failed_keys:
            self.failures[one.place] = NotAttempted("an earlier message of its key was not sent")
        return one.place not in self.failures

    async def _failed(self, chunk: Sequence[Numbered], error: Exception) -> None:
        """A call failed as a whole."""
        self._failed_calls += 1
        if outage_of(error, self._breaker) is not None:
            self._down = error if isinstance(error, SinkDown) else _down(error)
        elif self._failed_calls > MAX_FAILED_CALLS:
            self._down = _down(error)
        elif len(chunk) == 1:
            self._fail(*chunk[0], error)
            return
        if self._down is None:
            half = (len(chunk) + 1) // 2
            await self._send_chunk(chunk[:half])
            await self._send_chunk(chunk[half:])
            return
        for place, _ in chunk:
            self.failures[place] = self._down

    def _fail(self, place: int, message: Message, error: BaseException) -> None:
        self.failures[place] = error
        # A message that is dead lets the next one of its key pass; the sink may have sent it.
        if message.key is not None and not isinstance(error, Permanent):
            self._failed_keys.add(message.key)


def waves(batch: Sequence[Numbered], *, keeps_order: bool) -> list[list[Numbered]]:
    """The messages in turns that follow each other: of a key, one in each."""
    if keeps_order:
        return [list(batch)] if batch else []
    turns: list[list[Numbered]] = []
    seen: Counter[str] = Counter()
    for one in batch:
        key = one.message.key
        turn = 0 if key is None else seen[key]
        if key is not None:
            seen[key] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(one)
    return turns


def chunks(wave: Sequence[Numbered], limits: Limits) -> Iterator[list[Numbered]]:
    """The messages in parts that one call may be given, in order."""
    chunk: list[Numbered] = []
    size = 0
    for one in wave:
        more = one.message.size
        if chunk and (len(chunk) >= limits.items or size + more > limits.bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += more
    if chunk:
        yield chunk


def _groups(parts: list[list[Numbered]], number: int) -> Iterator[list[list[Numbered]]]:
    for start in range(0, len(parts), number):
        yield parts[start : start + number]


def _error_of(outcome: object) -> BaseException:
    """A user's sink may return anything."""
    match outcome:
        case Bad(reason):
            return Permanent(reason)
        case Retry(reason, after):
            return RetryLater(after, reason, spent=True)
        case _:
            message = f"a sink returns None, Retry or Bad for each message, not {outcome!r:.80}"
            return InvalidOption(message, option="send", reason="returned something else")


def _down(error: Exception) -> SinkDown:
    down = SinkDown(error_summary(error))
    down.__cause__ = error
    return down
