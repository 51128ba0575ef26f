"""Translate errors of a caller's driver into Outlast's, with the driver's error as their cause."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from ...model.errors import (
    Contention,
    OutlastError,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    WrongConnection,
)
from ..sqlite import connection

DRIVERS = frozenset({"psycopg", "psycopg2", "asyncpg", "sqlite3", "aiosqlite"})
FRAMEWORKS = frozenset({"sqlalchemy", "django"})

# Raised by drivers and frameworks themselves, not by the database: the connection is in use, was
# returned to its pool, or its transaction must be rolled back first.
MISUSE_ERRORS = frozenset({"ProgrammingError", "InterfaceError", "InvalidRequestError"})

MIGRATE = "the tables do not fit this release ({}): run `outlast migrate`"


@contextmanager
def translate_caller_errors() -> Iterator[None]:
    """Translate errors of a caller's connection. Other errors pass unchanged."""
    try:
        yield
    except OutlastError as error:
        if not isinstance(error.__cause__, UnicodeEncodeError):
            raise
        raise _of_another_encoding(error.__cause__) from error
    except Exception as error:
        if (driver := _of_a_driver(error)) is None:
            raise
        raise _ours(driver) from error


def _of_another_encoding(error: UnicodeEncodeError) -> WrongConnection:
    return WrongConnection(
        reason=f"the given connection uses {error.encoding}, which has no"
        f" {error.object[error.start]!r}: set its client_encoding to UTF8"
    )


def _of_a_driver(error: Exception) -> BaseException | None:
    """The driver's own error: as raised, or wrapped by a framework."""
    behind = (error, getattr(error, "orig", None), error.__cause__)
    deeper = (one.__cause__ for one in behind if isinstance(one, BaseException))
    found = [one for one in (*behind, *deeper) if isinstance(one, BaseException)]
    return next((one for one in found if _family(one) in DRIVERS and _is_error(one)), None) or (
        error if _family(error) in FRAMEWORKS and _is_error(error) else None
    )


def _is_error(error: BaseException) -> bool:
    """Whether an error is the database's, not that of a wrong call of the driver."""
    return bool(_names(error) & (MISUSE_ERRORS | {"Error", "PostgresError", "DBAPIError"}))


def _names(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def _family(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _ours(error: BaseException) -> OutlastError:
    message = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    if any(word in message for word in ("is closed", "closed database", "already closed")):
        return WrongConnection(reason=f"the connection given is closed ({message})")
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if code is None and _names(error) & MISUSE_ERRORS:
        return WrongConnection(reason=f"the connection given cannot be used now ({message})")
    return _by_code(code, message)


def _of_sqlite(error: sqlite3.Error) -> OutlastError:
    try:
        with connection.translate_errors():
            raise error
    except OutlastError as ours:
        return ours


def _by_code(code: str | None, message: str) -> OutlastError:
    """Translate an SQLSTATE, which is the same in every driver."""
    match code:
        case None:
            return StoreUnavailable(reason=message)
        case "40001" | "40P01":
            return Contention(reason=message)
        case "57014" | "55P03":
            return StoreBusy(reason=message)
        case "42P01" | "42703" | "3F000":
            return SchemaMismatch(reason=MIGRATE.format(message))
        case "25P02":
            return WrongConnection(
                reason="the transaction of the connection given has failed already: roll it back"
            )
        case _ if code[:2] in {"08", "53", "57"} or code in {"25006", "25P03", "25P04"}:
            return StoreUnavailable(reason=message)
    rows = code[:2] in {"22", "23"}
    return StoreError(f"PostgreSQL refused: {message}", refused=rows)
