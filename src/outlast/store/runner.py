"""Two ways to carry out an operation: on a blocking session, and on an asyncio one.

This is the only place where a generator of statements meets a connection, and nothing here is
written twice but the word await.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from typing import Any, Protocol, TypeVar

from ..model.errors import OutlastError, StoreError
from ..model.safe_text import error_summary
from ..ops.operation import Op, Step

T = TypeVar("T")

# What drivers raise about a value that they cannot send: text that the connection's encoding lacks,
# a number that is too large, a structure that is too deep.
ENCODING_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)


class Session(AbstractContextManager["Session"], Protocol):
    """A connection in use for one operation: leaving it commits, leaving by an error rolls back."""

    def execute_step(self, step: Step) -> Any: ...


class AsyncSession(AbstractAsyncContextManager["AsyncSession"], Protocol):
    async def execute_step(self, step: Step) -> Any: ...


def drive(op: Op[T], session: Session) -> T:
    with closing(op), session:
        answer: Any = None
        try:
            while True:
                step = op.send(answer)
                try:
                    answer = session.execute_step(step)
                except OutlastError:
                    raise
                except ENCODING_ERRORS as error:
                    raise encoding_error(error) from error
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
                        answer = await session.execute_step(step)
                    except OutlastError:
                        raise
                    except ENCODING_ERRORS as error:
                        raise encoding_error(error) from error
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]


def encoding_error(error: Exception) -> StoreError:
    """A driver's error about a value, in our words: it is about the rows that were given."""
    return StoreError(
        f"this value cannot be sent to the database: {error_summary(error)}", refused=True
    )
