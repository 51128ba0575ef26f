"""Batches: many jobs in one call, and the search for the item that makes a call fail.

A handler that raises without naming an item makes all of them suspects. The items are called again
in halves, level by level, until the failing ones are alone:

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

from .claim import Claim
from .errors import BatchFailed, InvalidOption
from .options import seconds

T = TypeVar("T")

MAX_BATCH_ITEMS = 10_000  # items of one call
DEFAULT_WAIT_S = 0.05  # seconds

# Consecutive calls that may fail without naming an item before the search stops:
# 1 + 2 + 4 + 8 and one more, so that eight bad items are found however they are spread. When
# everything fails, a thousand more calls would only burden a dependency that is down.
MAX_FAILED_CALLS = 16
# The same for connection errors: a batch and both halves. A single bad item is in one half only.
MAX_CONNECTION_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """A call takes up to `size` items, or those gathered `wait` seconds after the first."""

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
    """A task's batch options, if it has any."""
    if size is not None:
        return Batch(size, DEFAULT_WAIT_S if wait is None else seconds("wait", wait) or 0.0)
    if wait is not None:
        raise InvalidOption(option="wait", reason="is for batch tasks: give batch=… as well")
    return None


def last_try(claim: Claim) -> bool:
    """Whether one more failure would end the job."""
    return claim.failures + 1 >= claim.max_attempts


def runs_alone(claim: Claim) -> bool:
    """Whether one more crash or failure would end an item that has had some. Its last attempt is a
    call of its own, so that it does not die of another item's error, hang or crash."""
    return claim.one_crash_left or (claim.failures > 0 and last_try(claim))


class Bisection(Generic[T]):
    """The parts of a batch still to be called, level by level: depth first, a bad first item would
    look like an outage all the way down."""

    def __init__(self, items: Sequence[T]) -> None:
        self._parts: deque[list[T]] = deque([list(items)])
        self._failed = 0  # consecutive calls

    def next(self) -> list[T] | None:
        return self._parts.popleft() if self._parts else None

    @property
    def failed_calls(self) -> int:
        """Consecutive failed calls that named no item."""
        return self._failed

    def drain(self) -> list[T]:
        """Take the items still to be called, once the search is known to be futile."""
        items = [item for part in self._parts for item in part]
        self._parts.clear()
        return items

    def succeeded(self) -> None:
        """Record a call that reported each of its items."""
        self._failed = 0

    def failed(self, part: Sequence[T]) -> None:
        """Record a call that failed as a whole and queue its halves; a single item has none."""
        self._failed += 1
        half = (len(part) + 1) // 2
        if len(part) > 1:
            self._parts += [list(part[:half]), list(part[half:])]

    def abandon_hopeless(self, last_try: Callable[[T], bool]) -> list[T]:
        """Take the items that are no longer searched after too many consecutive failures. An item
        on its last try is never among them: it must fail alone."""
        if self._failed <= MAX_FAILED_CALLS:
            return []
        items = [item for part in self._parts for item in part]
        kept = [[item for item in part if last_try(item)] for part in self._parts]
        self._parts = deque(part for part in kept if part)
        return [item for item in items if not last_try(item)]


def results_of(returned: object, number: int) -> list[object] | None:
    """One result for each item, or None if the returned value does not match the items."""
    if returned is None:
        return [None] * number
    return returned if isinstance(returned, list) and len(returned) == number else None


def batch_failure_problem(failed: BatchFailed, number: int) -> str | None:
    """The problem with a handler's `BatchFailed`, if it has one."""
    if wrong := [index for index in failed.errors if not 0 <= index < number]:
        return f"BatchFailed names item {wrong[0]}: this call had items 0 to {number - 1}"
    if results_of(failed.results, number) is None:
        return f"BatchFailed has results that are not a list of {number}, one for each item"
    return None
