"""Many jobs in one call: how they are gathered, and how the one that spoils a call is found.

A handler that raises without naming an item leaves all of them under suspicion. Its items are
called again in halves, level by level, until those that fail stand alone:

    ········x·······          fails
    ········ x·······         succeeds, fails
             x··· ····        fails, succeeds          about 2·log₂(n) more calls for one bad item
             x· ··   …
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .errors import BatchFailed, InvalidOption
from .job import Claim
from .options import seconds

T = TypeVar("T")

MAX_BATCH_ITEMS = 10_000  # items of one call
DEFAULT_WAIT_S = 0.05  # seconds

# Calls in a row that may fail without naming an item before it is taken to be no item's fault:
# 1 + 2 + 4 + 8 and one more, so that eight bad items are found however they are spread. When
# everything fails, the next thousand calls would only burden what is down already.
MAX_FAILED_CALLS = 16
# The same for connection errors: a batch and both of its halves. One bad item is in one of them.
MAX_CONNECTION_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Up to `size` items make a call, or as many as there are `wait` seconds after the first."""

    size: int
    wait: float = DEFAULT_WAIT_S

    def __post_init__(self) -> None:
        whole = isinstance(self.size, int) and not isinstance(self.size, bool)
        if not whole or not 1 <= self.size <= MAX_BATCH_ITEMS:
            raise InvalidOption(
                option="batch",
                reason=f"must be a whole number from 1 to {MAX_BATCH_ITEMS}, not {self.size!r}",
            )
        if (wait := seconds("wait", self.wait)) is None or wait > 60.0:
            raise InvalidOption(
                option="wait", reason=f"must be at most 60 seconds, not {self.wait!r}"
            )


def batch_of(size: int | None, wait: float | None) -> Batch | None:
    """What a task says about batches, if it does."""
    if size is not None:
        return Batch(size, DEFAULT_WAIT_S if wait is None else seconds("wait", wait) or 0.0)
    if wait is not None:
        raise InvalidOption(option="wait", reason="is for batch tasks: give batch=… as well")
    return None


def last_try(claim: Claim) -> bool:
    """One more failure would end it."""
    return claim.failures + 1 >= claim.max_attempts


def runs_alone(claim: Claim) -> bool:
    """Whether one more crash or failure would end an item that has had some: no other's error, hang
    or crash may be what it dies of, so its last chance is a call of its own."""
    return claim.one_crash_left or (claim.failures > 0 and last_try(claim))


class Bisection(Generic[T]):
    """What is still to be called, together. Level by level: were it half by half, a bad first item
    would look like an outage all the way down."""

    def __init__(self, items: Sequence[T]) -> None:
        self._parts: deque[list[T]] = deque([list(items)])
        self._failed = 0  # calls in a row

    def next(self) -> list[T] | None:
        return self._parts.popleft() if self._parts else None

    @property
    def failed_calls(self) -> int:
        """In a row, without a word about any item."""
        return self._failed

    def drain(self) -> list[T]:
        """Those that are still to be called, once it is known to be in vain."""
        items = [item for part in self._parts for item in part]
        self._parts.clear()
        return items

    def succeeded(self) -> None:
        """A call told of each of its items."""
        self._failed = 0

    def failed(self, part: Sequence[T]) -> None:
        """A call did not: its halves are called in their turn. One item has no halves."""
        self._failed += 1
        half = (len(part) + 1) // 2
        if len(part) > 1:
            self._parts += [list(part[:half]), list(part[half:])]

    def abandon_hopeless(self, last_try: Callable[[T], bool]) -> list[T]:
        """Those that are not searched any more, once too many calls have failed in a row. An item
        that would die of it is never among them: it has to fail by itself."""
        if self._failed <= MAX_FAILED_CALLS:
            return []
        items = [item for part in self._parts for item in part]
        kept = [[item for item in part if last_try(item)] for part in self._parts]
        self._parts = deque(part for part in kept if part)
        return [item for item in items if not last_try(item)]


def results_of(returned: object, number: int) -> list[object] | None:
    """A result for each item, or None: what was returned does not fit them."""
    if returned is None:
        return [None] * number
    return returned if isinstance(returned, list) and len(returned) == number else None


def batch_failure_problem(failed: BatchFailed, number: int) -> str | None:
    """What is wrong with how a handler named its failed items, if anything is."""
    if wrong := [index for index in failed.errors if not 0 <= index < number]:
        return f"BatchFailed names item {wrong[0]}: this call had items 0 to {number - 1}"
    if results_of(failed.results, number) is None:
        return f"BatchFailed has results that are no list of {number}, one for each item"
    return None
