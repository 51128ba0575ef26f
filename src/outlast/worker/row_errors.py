"""Classify errors: outages of the database, which pass, and faults of the rows sent to it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from ..model.errors import (
    Contention,
    DeadlineExceeded,
    OutlastError,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from ..ops.duties import DutyTally

log = logging.getLogger("outlast.worker")


def is_row_error(error: BaseException) -> bool:
    """Whether an error is caused by the rows that were sent, not by the database."""
    if isinstance(error, StoreError):
        return bool(error.facts.get("refused"))
    return isinstance(error, OutlastError)


def is_unexpected(error: BaseException) -> bool:
    """Whether an error is not one of Outlast's: a row may be at fault, or there is a bug."""
    return isinstance(error, Exception) and not isinstance(error, OutlastError | OSError)


class RowSuspicion:
    """Decides whether a row is at fault. The second unexpected error in a row counts as a fault of
    a row: storing rows one by one is harmless, but the same batch must not be retried for ever."""

    def __init__(self) -> None:
        self._unexpected_count = 0

    def blames_row(self, error: BaseException) -> bool:
        self._unexpected_count += is_unexpected(error)
        return is_row_error(error) or (is_unexpected(error) and self._unexpected_count > 1)

    def clear(self) -> None:
        """Reset after a success."""
        self._unexpected_count = 0


async def run_isolated(
    apply: Callable[[Sequence[str]], Awaitable[int]],
    ids: Sequence[str],
    suspicion: RowSuspicion,
    failure: str,
) -> DutyTally:
    """Apply a change to all these jobs at once. A failing batch is halved until the faulty row is
    found, which is logged as a `failure` and left alone."""
    if not ids:
        return DutyTally()
    try:
        done = await apply(ids)
    except Exception as error:
        if not suspicion.blames_row(error):
            raise
        if len(ids) == 1:
            log.error("%s: %s: %s", failure, ids[0], error)
            return DutyTally(found=1, failed=1)
    else:
        suspicion.clear()
        return DutyTally(len(ids), done, len(ids) - done)
    middle = len(ids) // 2
    tally = await run_isolated(apply, ids[:middle], suspicion, failure)
    tally.add(await run_isolated(apply, ids[middle:], suspicion, failure))
    return tally


def is_away(error: BaseException) -> bool:
    """Whether the database is unavailable, or the worker is asked to stop."""
    away = (StoreUnavailable, DeadlineExceeded, SchemaMismatch, Unsupported)
    if isinstance(error, away) or not isinstance(error, Exception):
        return True
    return isinstance(error, OSError) and not isinstance(error, OutlastError)


def is_busy(error: BaseException) -> bool:
    """Whether another client blocks the write for a limited time."""
    return isinstance(error, StoreBusy | Contention)
