"""Runners: drive an operation on a blocking session, or on an asyncio one.

Only here does a generator of statements meet a connection; the two differ only in `await`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, TypeVar

from ..model.errors import OutlastError, StoreError
from ..model.safe_text import error_summary
from ..ops.operation import Op, Step

T = TypeVar("T")

# Raised by drivers for values that they cannot send: text outside the connection's encoding, too
# large a number, too deep a structure.
ENCODING_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)


class Session(AbstractContextManager["Session"], Protocol):
    """A connection in use for one operation: exit commits, exit by an error rolls back."""

    def execute_step(self, step: Step) -> object: ...


class AsyncSession(AbstractAsyncContextManager["AsyncSession"], Protocol):
    async def execute_step(self, step: Step) -> object: ...


def drive(op: Op[T], session: Session, first: Step | None = None) -> T:
    """Run an operation to its end; `first` is the step that a started operation has yielded."""
    try:
        with session:
            answer: object = None
            try:
                while True:
                    step, first = first or op.send(answer), None
                    try:
                        answer = session.execute_step(step)
                    except OutlastError:
                        raise
                    except ENCODING_ERRORS as error:
                        raise encoding_error(error) from error
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
    finally:
        op.close()


async def adrive(op: Op[T], session: AsyncSession) -> T:
    try:
        async with session:
            answer: object = None
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
    finally:
        op.close()


def encoding_error(error: Exception) -> StoreError:
    """A driver's error about a value; the fault is in the given rows."""
    return StoreError(
        f"this value cannot be sent to the database: {error_summary(error)}", refused=True
    )
