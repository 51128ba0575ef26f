"""Translate errors of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from ...model.errors import (
    Contention,
    CorruptDatabase,
    OutlastError,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)

JOB_KEY_INDEX = "job_key"  # idempotency keys


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the server's errors into Outlast's."""
    try:
        yield
    except OutlastError:
        raise
    except (errors.SerializationFailure, errors.DeadlockDetected) as error:
        raise Contention(reason=first_line(error)) from error
    except errors.ReadOnlySqlTransaction as error:
        # The server was demoted: the next connection may reach the new primary.
        raise StoreUnavailable(reason=first_line(error), broke=True) from error
    except errors.LockNotAvailable as error:
        raise StoreBusy(reason=first_line(error), locked=True) from error
    except errors.QueryCanceled as error:
        raise StoreBusy(reason=first_line(error)) from error
    except (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName) as error:
        raise SchemaMismatch(
            reason=f"the tables do not fit this release ({first_line(error)}): run"
            " `outlast migrate`"
        ) from error
    except (errors.DataCorrupted, errors.IndexCorrupted) as error:
        raise CorruptDatabase(
            reason=first_line(error), or_else="; a damaged index can be rebuilt by REINDEX"
        ) from error
    except (errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout) as error:
        # The process was paused for so long that the server closed the connection.
        raise StoreUnavailable(reason=first_line(error), broke=True) from error
    except (errors.ProgramLimitExceeded, errors.StatementTooComplex, errors.TooManyColumns,
            errors.TooManyArguments) as error:  # fmt: skip
        # Class 54: a value is too large or too deep. psycopg counts it as an operational error.
        raise StoreError(f"PostgreSQL refused: {first_line(error)}", refused=True) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        # Insufficient resources (class 53: disk full, too many connections) come from a server
        # that is alive; without a code, or with 57P0x and 08xxx, the connection broke.
        broke = error.sqlstate is None or error.sqlstate[:2] in {"57", "08"}
        raise StoreUnavailable(reason=first_line(error), broke=broke) from error
    except psycopg.Error as error:
        raise _refusal(error) from error


def _refusal(error: psycopg.Error) -> StoreError:
    if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name == JOB_KEY_INDEX:
        # A key that another transaction took meanwhile: the next try sees its job.
        return Contention(reason=first_line(error))
    if type(error) is psycopg.DatabaseError and error.sqlstate is None:
        # In a pipeline, a connection that breaks is an answer without a code.
        return StoreUnavailable(reason=first_line(error), broke=True)
    rows = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    return StoreError(f"PostgreSQL refused: {first_line(error)}", refused=rows)


def first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
