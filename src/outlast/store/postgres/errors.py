"""Translate errors of PostgreSQL."""

from __future__ import annotations

import psycopg
from psycopg import errors

from ...model.errors import (
    Contention,
    CorruptDatabase,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)

JOB_KEY_INDEX = "job_key"  # idempotency keys


class PostgresErrors:
    """A context manager without state: a generator would cost more than the code it wraps."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, psycopg.Error):
            raise _translated(error) from error


_ERRORS = PostgresErrors()


def translate_errors() -> PostgresErrors:
    """Translate the server's errors into Outlast's."""
    return _ERRORS


def _translated(error: psycopg.Error) -> StoreError:
    match error:
        case errors.SerializationFailure() | errors.DeadlockDetected():
            return Contention(reason=first_line(error))
        case errors.ReadOnlySqlTransaction():
            # The server was demoted: the next connection may reach the new primary.
            return StoreUnavailable(reason=first_line(error), broke=True)
        case errors.LockNotAvailable():
            return StoreBusy(reason=first_line(error), locked=True)
        case errors.QueryCanceled():
            return StoreBusy(reason=first_line(error))
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
            return SchemaMismatch(
                reason=f"the tables do not fit this release ({first_line(error)}): run"
                " `outlast migrate`"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return CorruptDatabase(
                reason=first_line(error), or_else="; a damaged index can be rebuilt by REINDEX"
            )
        case errors.IdleInTransactionSessionTimeout() | errors.TransactionTimeout():
            # The process was paused for so long that the server closed the connection.
            return StoreUnavailable(reason=first_line(error), broke=True)
        case (errors.ProgramLimitExceeded() | errors.StatementTooComplex() | errors.TooManyColumns()
              | errors.TooManyArguments()):  # fmt: skip
            # Class 54: a value is too large or too deep. psycopg counts it as an operational error.
            return StoreError(f"PostgreSQL refused: {first_line(error)}", refused=True)
        case psycopg.OperationalError() | psycopg.InterfaceError():
            # Insufficient resources (class 53: disk full, too many connections) come from a server
            # that is alive; without a code, or with 57P0x and 08xxx, the connection broke.
            broke = error.sqlstate is None or error.sqlstate[:2] in {"57", "08"}
            return StoreUnavailable(reason=first_line(error), broke=broke)
    return _refusal(error)


def _refusal(error: psycopg.Error) -> StoreError:
    if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name == JOB_KEY_INDEX:
        # A key that another transaction took meanwhile: the next try sees its job.
        return Contention(reason=first_line(error))
    if type(error) is psycopg.DatabaseError and error.sqlstate is None:
        # In a pipeline, a broken connection is an error without a code.
        return StoreUnavailable(reason=first_line(error), broke=True)
    rows = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    return StoreError(f"PostgreSQL refused: {first_line(error)}", refused=rows)


def first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
