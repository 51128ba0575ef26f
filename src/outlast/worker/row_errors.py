"""Whose fault an error is: the database's, which is waited for, or that of the rows it got."""

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
    """Whether an error is none of ours: a row may be to blame, or we are."""
    return isinstance(error, Exception) and not isinstance(error, OutlastError | OSError)


class RowSuspicion:
    """Whether a row is to blame for what failed. An unforeseen error is taken for one the second
    time in a row: taking rows one by one does no harm, and trying the same again for ever does."""

    def __init__(self) -> None:
        self._unforeseen = 0

    def blames_row(self, error: BaseException) -> bool:
        self._unforeseen += is_unexpected(error)
        return is_row_error(error) or (is_unexpected(error) and self._unforeseen > 1)

    def clear(self) -> None:
        """It went well."""
        self._unforeseen = 0


def is_away(error: BaseException) -> bool:
    """Whether nothing at all can be stored at present, or we are told to stop."""
    away = (StoreUnavailable, DeadlineExceeded, SchemaMismatch, Unsupported)
    if isinstance(error, away) or not isinstance(error, Exception):
        return True
    return isinstance(error, OSError) and not isinstance(error, OutlastError)


def is_busy(error: BaseException) -> bool:
    """Whether somebody else is in the way, who will not be for ever."""
    return isinstance(error, StoreBusy | Contention)
