"""Two ways to carry out an operation: on a blocking session, and on an asyncio one.

This is the only place where a generator of statements meets a connection, and nothing here is
written twice but the word await.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from typing import Any, Protocol, TypeVar

from ..model.errors import OutlastError, StoreError
from ..model.text import brief
from ..ops.statement import Op, Step

T = TypeVar("T")

# What drivers raise about a value that they cannot send: text that the connection's encoding lacks,
# a number that is too large, a structure that is too deep.
UNSENDABLE = (ValueError, TypeError, OverflowError, RecursionError)


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
                step = op.send(answer)
                try:
                    answer = session.answer(step)
                except OutlastError:
                    raise
                except UNSENDABLE as error:
                    raise unsendable(error) from error
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def adrive(op: Op[T], session: AsyncSession) -> T:
    with closing(op):
        async with session:
            answer: Any = None
            try:
                while True:
                    step = op.send(answer)
                    try:
                        answer = await session.answer(step)
                    except OutlastError:
                        raise
                    except UNSENDABLE as error:
                        raise unsendable(error) from error
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]


def unsendable(error: Exception) -> StoreError:
    """A driver's error about a value, in our words: it is about the rows that were given."""
    return StoreError(f"this value cannot be sent to the database: {brief(error)}", refused=True)
