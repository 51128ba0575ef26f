"""Classify errors: outages of the database, which pass, and faults of the rows sent to it."""

from __future__ import annotations

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


def is_row_error(error: BaseException) -> bool:
    """Whether an error is about the rows that the database was given, not about the database."""
    if isinstance(error, StoreError):
        return bool(error.facts.get("refused"))
    return isinstance(error, OutlastError)


def is_unexpected(error: BaseException) -> bool:
    """Whether an error is not one of Outlast's: a row may be at fault, or a bug."""
    return isinstance(error, Exception) and not isinstance(error, OutlastError | OSError)


class RowSuspicion:
    """Whether a row is at fault. An unexpected error counts as one the second time in a row:
    storing rows one by one does no harm, and retrying the same batch for ever does."""

    def __init__(self) -> None:
        self._unforeseen = 0

    def blames_row(self, error: BaseException) -> bool:
        self._unforeseen += is_unexpected(error)
        return is_row_error(error) or (is_unexpected(error) and self._unforeseen > 1)

    def clear(self) -> None:
        """Reset after a success."""
        self._unforeseen = 0


def is_away(error: BaseException) -> bool:
    """Whether nothing can be stored at present, or the worker is asked to stop."""
    away = (StoreUnavailable, DeadlineExceeded, SchemaMismatch, Unsupported)
    if isinstance(error, away) or not isinstance(error, Exception):
        return True
    return isinstance(error, OSError) and not isinstance(error, OutlastError)


def is_busy(error: BaseException) -> bool:
    """Whether another client blocks the write for a limited time."""
    return isinstance(error, StoreBusy | Contention)
