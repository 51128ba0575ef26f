"""Two ways to carry out an operation: on a blocking session, and on an asyncio one.

This is the only place where a generator of statements meets a connection, and nothing here is
written twice but the word await.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from typing import Any, Protocol, TypeVar

from ..ops.statement import Op, Step

T = TypeVar("T")


class Session(AbstractContextManager["Session"], Protocol):
    """A connection in use for one operation: leaving it commits, leaving by an error rolls back."""

    def answer(self, step: Step) -> Any: ...


class AsyncSession(AbstractAsyncContextManager["AsyncSession"], Protocol):
    async def answer(self, step: Step) -> Any: ...


def drive(op: Op[T], session: Session) -> T:
    with closing(op), session:
        answer: Any = None
        try:
            while True:
                answer = session.answer(op.send(answer))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def adrive(op: Op[T], session: AsyncSession) -> T:
    with closing(op):
        async with session:
            answer: Any = None
            try:
                while True:
                    answer = await session.answer(op.send(answer))
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
