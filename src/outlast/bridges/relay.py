"""Relay: sends one batch of an outbox in calls, and returns the outcome of each message.

    messages ─▶ waves ─▶ chunks ─▶ send ──┬── outcome by position
                │         │               ├── SinkDown ──────────── the rest is not sent
                │         │               ├── connection error ──── the same, if both halves fail;
                │         │               │      timeout ──────────── and if one message does
                │         │               └── any other error ───── sent in halves
                │         └ as many items and bytes as the sink accepts
                └ one message of each key at a time, unless the sink keeps the order by itself

After a failed message, later messages of its key are not sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..model.breaker import Breaker, Outage, outage_of
from ..model.errors import InvalidOption, NotAttempted, Permanent, RetryLater
from ..model.safe_text import error_summary
from .protocols import Bad, Limits, Message, Retry, SendOutcome, SinkDown

log = logging.getLogger("outlast.bridges")

# Calls in a row that may fail as a whole before the search for bad messages ends: more than needed
# to find one among ten thousand.
MAX_FAILED_CALLS = 16

CONTRACT = "it must return a list with None, Retry or Bad for each"

Send = Callable[[Sequence[Message]], Awaitable[Sequence[SendOutcome]]]
Failures = dict[int, BaseException]  # by the position of the message


class Numbered(NamedTuple):
    """A message and its position in the batch."""

    position: int
    message: Message


class Pace:
    """The number of messages per call, reduced for a sink that is too slow for its own limit."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self.items: int | None = None  # None: the sink's own limit

    def within(self, limits: Limits) -> Limits:
        if self.items is None or self.items >= limits.items:
            return limits
        return replace(limits, items=self.items)

    def slow_down(self, items: int) -> None:
        """Limit the messages per call: larger calls did not end in time."""
        if self.items is not None and self.items <= items:
            return
        self.items = items
        log.warning(
            "outbox %s: its calls take longer than their timeout, and are limited to %d messages:"
            " give the sink smaller limits, or the outbox a longer timeout",
            self._name, items,
        )  # fmt: skip


async def relay(
    messages: Sequence[Message], send: Send, limits: Limits, breaker: Breaker, pace: Pace
) -> Failures:
    """Send messages; returns the errors of those that were not sent. If every call fails, the error
    is raised: the worker judges whether the messages or the sink are at fault."""
    batch = _Relay(send, pace.within(limits), breaker, pace)
    await batch.send_all([Numbered(*pair) for pair in enumerate(messages)])
    if batch.given_up is not None and not batch.answered:
        raise batch.given_up
    return batch.failures


class _Relay:
    def __init__(self, send: Send, limits: Limits, breaker: Breaker, pace: Pace) -> None:
        self._send = send
        self._pace = pace
        self._limits = limits
        self._breaker = breaker
        self._failed_keys: set[str] = set()
        self._failed_calls = 0  # in a row
        self._down: SinkDown | None = None
        self.given_up: Exception | None = None  # the error after which no more calls were made
        self.answered = False  # a call returned outcomes
        self.failures: Failures = {}

    async def send_all(self, batch: Sequence[Numbered]) -> None:
        for wave in waves(self._fitting(batch), keeps_order=self._limits.keeps_order):
            parts = chunks(wave, self._limits)
            for some in groups(parts, self._limits.parallel):
                await asyncio.gather(*map(self._send_chunk, some))

    def _fitting(self, batch: Sequence[Numbered]) -> list[Numbered]:
        """The messages that are not too large for a call."""
        most = self._limits.bytes
        for position, message in batch:
            if (size := message.size) > most:
                self._fail(position, message, Permanent(f"{size:,} bytes: the limit is {most:,}"))
        return [one for one in batch if one.position not in self.failures]

    async def _send_chunk(self, chunk: Sequence[Numbered]) -> None:
        if (error := await self._call(chunk)) is not None:
            await self._search(chunk, error)

    async def _call(self, chunk: Sequence[Numbered]) -> Exception | None:
        """Make one call with the messages that may be sent now; returns its error if it failed as a
        whole."""
        chunk = [one for one in chunk if self._is_next(one)]
        if not chunk:
            return None
        try:
            outcomes = await self._send([message for _, message in chunk])
        except Exception as error:
            self._failed_calls += 1
            if isinstance(error, SinkDown):
                self._down = error
            elif outage_of(error, self._breaker) is Outage.CERTAIN:
                self._down = _down(error)
            return error
        self._failed_calls, self.answered = 0, True
        for (position, message), outcome in zip(chunk, _by_position(outcomes, chunk), strict=True):
            if outcome is not None:
                self._fail(position, message, _error_of(outcome))
        return None

    def _is_next(self, one: Numbered) -> bool:
        """Whether a message may be sent now."""
        if one.position in self.failures:
            return False
        if self._down is not None:
            self.failures[one.position] = self._down
        elif self.given_up is not None:
            self.failures[one.position] = NotAttempted("too many calls before it failed")
        elif one.message.key is not None and one.message.key in self._failed_keys:
            self.failures[one.position] = NotAttempted("an earlier message of its key was not sent")
        return one.position not in self.failures

    async def _search(
        self, chunk: Sequence[Numbered], error: Exception, *, alone: bool = True
    ) -> None:
        """Search for the message at fault, after a call failed as a whole. `alone`: no other call
        shows that the sink is available."""
        suspected = outage_of(error, self._breaker) is not None
        if self._down is None and suspected and alone and len(chunk) == 1:
            self._down = _down(error)
        if self._down is None and not suspected and self._failed_calls > MAX_FAILED_CALLS:
            self.given_up = error
        left = [one for one in chunk if self._is_next(one)]
        if len(left) == 1:
            self._fail(*left[0], error)
        elif left and suspected:
            await self._search_outage(left)
        elif left:
            half = (len(left) + 1) // 2
            await self._send_chunk(left[:half])
            await self._send_chunk(left[half:])

    async def _search_outage(self, chunk: Sequence[Numbered]) -> None:
        """After a connection error or a timeout, find out whether a message, the size of the call
        or the sink is at fault: the sink, if both halves fail as well."""
        half = (len(chunk) + 1) // 2
        first, second = chunk[:half], chunk[half:]
        first_error = await self._call(first)
        if first_error is None:
            if (second_error := await self._call(second)) is not None:
                await self._search(second, second_error, alone=False)
            return
        keys = {message.key for _, message in first} - {None}
        free = [one for one in second if one.message.key not in keys]  # must not be overtaken
        free_error = await self._call(free)
        suspected = outage_of(first_error, self._breaker) is not None
        if self._down is None and suspected and (free_error is not None or not free):
            if await self._is_slow(first, first_error):
                await self._send_slowly(chunk[1:])
                return
            self._down = _down(first_error)
        await self._search(first, first_error, alone=False)
        if free_error is not None:
            await self._search(free, free_error, alone=False)
        await self._send_chunk([one for one in second if one.message.key in keys])

    async def _is_slow(self, chunk: Sequence[Numbered], error: Exception) -> bool:
        """Whether a sink that timed out responds to a call with one message, the first of the
        chunk, which is sent by that."""
        if not isinstance(error, TimeoutError) or len(chunk) == 1:
            return False
        return await self._call(chunk[:1]) is None

    async def _send_slowly(self, left: Sequence[Numbered]) -> None:
        """Send to a slow sink two messages at once, then four, eight, until a call times out."""
        size, best, grows = 2, 1, True
        while left:
            some = left[:size]
            error = await self._call(some)
            if error is None:
                best = max(best, len(some))
                size = 2 * size if grows else size
            elif isinstance(error, TimeoutError) and len(some) > 1 and self._down is None:
                size, grows = len(some) // 2, False
                continue
            elif len(some) == 1 and len(left) > 1:  # the fault of this one, if the next one is sent
                some, size = left[:2], best
                await self._search_outage(some)
            else:
                await self._search(some, error)
            left = left[len(some) :]
        self._pace.slow_down(best if grows else min(best, size))

    def _fail(self, position: int, message: Message, error: BaseException) -> None:
        self.failures[position] = error
        # A dead message lets the next one of its key pass; the sink may have sent it.
        if message.key is not None and not isinstance(error, Permanent):
            self._failed_keys.add(message.key)


def waves(batch: Sequence[Numbered], *, keeps_order: bool) -> list[list[Numbered]]:
    """Split messages into waves that are sent one after the other, with one message per key."""
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
    """Split messages into the parts of single calls, in order."""
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


def groups(parts: Iterable[list[Numbered]], number: int) -> Iterator[list[list[Numbered]]]:
    """Group parts that may be sent at once: the messages of a key are in one part of a group."""
    group: list[list[Numbered]] = []
    seen: set[str] = set()
    for part in parts:
        keys = {message.key for _, message in part if message.key is not None}
        if group and (len(group) == number or keys & seen):
            yield group
            group, seen = [], set()
        group.append(part)
        seen |= keys
    if group:
        yield group


def _by_position(outcomes: object, chunk: Sequence[Numbered]) -> Sequence[object]:
    """The outcome of each message. An invalid result of a sink would recur at each call: its
    messages are dead, with the reason, instead of being sent for ever."""
    if isinstance(outcomes, list | tuple) and len(outcomes) == len(chunk):
        return outcomes
    what = f"{len(outcomes)} outcomes" if isinstance(outcomes, list | tuple) else repr(outcomes)
    reason = f"send of the sink returned {what:.80} for {len(chunk)} messages: {CONTRACT}"
    return [Bad(reason)] * len(chunk)


def _error_of(outcome: object) -> BaseException:
    """The error of an outcome; a user's sink may return anything."""
    match outcome:
        case Bad(reason):
            return Permanent(reason)
        case Retry(reason, after):
            try:
                return RetryLater(after, reason, spent=True)
            except InvalidOption:
                wrong = f"send of the sink returned Retry(after={after!r:.80}): seconds from 0 on"
                return Permanent(f"{wrong} are needed; {reason}")
        case _:
            return Permanent(f"send of the sink returned {outcome!r:.80} for a message: {CONTRACT}")


def _down(error: Exception) -> SinkDown:
    down = SinkDown(error_summary(error))
    down.__cause__ = error
    return down
