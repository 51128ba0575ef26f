"""Sinks and sources as a user may write them: in memory, and told what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from outlast.bridges import Bad, Limits, Message, Retry

Answer = Callable[[Message], Bad | Retry | None]


class ListSink:
    """Keeps what it was given. `answer` says what becomes of a message, and may raise."""

    def __init__(self, answer: Answer = lambda message: None, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.answer = answer
        self.calls: list[list[Message]] = []
        self.sent: list[Message] = []
        self.opened = self.closed = 0

    async def open(self) -> None:
        self.opened += 1

    async def send(self, messages: Sequence[Message]) -> list[Bad | Retry | None]:
        self.calls.append(list(messages))
        await asyncio.sleep(0)
        outcomes = [self.answer(message) for message in messages]
        self.sent += [m for m, outcome in zip(messages, outcomes, strict=True) if outcome is None]
        return outcomes

    async def close(self) -> None:
        self.closed += 1

    def bodies(self) -> list[object]:
        return [message.body for message in self.sent]

    def __repr__(self) -> str:
        return "a list"


class QueueSource:
    """Messages in memory; one that is not acknowledged is delivered again once handed back."""

    redelivery = 60.0

    def __init__(self, *messages: Message) -> None:
        self.waiting = list(messages)
        self.unacknowledged: dict[str, Message] = {}
        self.acknowledged: list[str] = []
        self.handed_back: list[str] = []
        self.receives = 0
        self.failures: list[Exception] = []  # of the next receives
        self.opened = self.closed = 0
        self._more = asyncio.Event()

    def put(self, *messages: Message) -> None:
        self.waiting += messages
        self._more.set()

    async def open(self) -> None:
        self.opened += 1

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        self.receives += 1
        if self.failures:
            raise self.failures.pop(0)
        if not self.waiting:
            self._more.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._more.wait()
            except TimeoutError:
                return []
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.unacknowledged |= {message.id: message for message in taken}
        return taken

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.unacknowledged.pop(message.id, None)
            self.acknowledged.append(message.id)

    async def hand_back(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.waiting.append(self.unacknowledged.pop(message.id))
            self.handed_back.append(message.id)

    async def lag(self) -> int | None:
        return len(self.waiting)

    async def close(self) -> None:
        self.closed += 1

    def __repr__(self) -> str:
        return "a queue"
