"""Wait for a condition, never for a length of time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

TIMEOUT = 30.0  # seconds for what takes one: a busy machine is no failure
SELDOM = 5  # times the interval: whoever has looked many times looks less often
REST = 3  # times as long as a look took: looking is a quarter of the time at most
LONGEST_PAUSE_S = 0.25


def eventually(
    predicate: Callable[[], T],
    timeout: float = TIMEOUT,
    interval: float = 0.02,
    message: str | Callable[[], str] = "",
) -> T:
    """The first true value of `predicate`, or an AssertionError after `timeout` seconds.

    An AssertionError inside the predicate means "not yet"; any other exception comes out at once.
    `message` is added to the failure, called if it is callable: `message=worker.output`.
    """
    attempts = _Attempts(predicate, timeout, message)
    while True:
        try:
            value = predicate()
        except AssertionError as error:
            attempts.saw(error)
        else:
            if value:
                return value
            attempts.saw(value)
        attempts.give_up_if_late()
        time.sleep(attempts.pause(interval))


async def aeventually(
    predicate: Callable[[], T | Awaitable[T]],
    timeout: float = TIMEOUT,
    interval: float = 0.02,
    message: str | Callable[[], str] = "",
) -> T:
    """`eventually` for a running event loop; the predicate may be async."""
    attempts = _Attempts(predicate, timeout, message)
    while True:
        try:
            value = predicate()
            if inspect.isawaitable(value):
                value = await value
        except AssertionError as error:
            attempts.saw(error)
        else:
            if value:
                return value
            attempts.saw(value)
        attempts.give_up_if_late()
        await asyncio.sleep(attempts.pause(interval))


class _Attempts:
    """The deadline, and what to say when it has passed."""

    def __init__(
        self, predicate: Callable[[], Any], timeout: float, message: str | Callable[[], str]
    ) -> None:
        self.predicate, self.timeout, self.message = predicate, timeout, message
        self.deadline = time.monotonic() + timeout
        self.count = 0
        self.last: Any = None
        self.paused_until = time.monotonic()
        self.took = 0.0  # seconds, by the last look

    def pause(self, interval: float) -> float:
        """Seconds until the next look: a question to a database every 20 ms, by all who wait, keeps
        those busy who are waited for."""
        growing = interval * min(1 + self.count / 20, SELDOM)
        resting = min(REST * self.took, LONGEST_PAUSE_S)
        self.paused_until = time.monotonic() + max(growing, resting)
        return max(growing, resting)

    def saw(self, value: Any) -> None:
        self.count += 1
        self.last = value
        self.took = time.monotonic() - self.paused_until

    def give_up_if_late(self) -> None:
        if time.monotonic() < self.deadline:
            return
        lines = [
            f"not true within {self.timeout:g} s ({self.count} looks): {_source(self.predicate)}",
            f"last: {self.last!r}",
        ]
        if self.message:
            lines.append(self.message() if callable(self.message) else self.message)
        cause = self.last if isinstance(self.last, AssertionError) else None
        raise AssertionError("\n".join(lines)) from cause


def _source(predicate: Callable[..., Any]) -> str:
    try:
        return " ".join(inspect.getsource(predicate).split())
    except (OSError, TypeError):
        return repr(predicate)


def rounds(number: int, what: str) -> Iterator[int]:
    """So many, with a line at every tenth of a campaign for those who watch it (`pytest -s`)."""
    for n in range(number):
        yield n
        if number >= 10 and (n + 1) % (number // 10) == 0:
            print(f"{what}: {n + 1} of {number}", flush=True)
