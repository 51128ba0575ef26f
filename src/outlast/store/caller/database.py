"""Whether a caller's connection leads to the database that holds our jobs.

A job can only commit with the caller's rows if both are in one database. Another file, or another
server, may have tables of the same names: then the job would be stored where no worker looks.

A SQLite connection is asked for its files, each time: it is a look into memory. A connection to
PostgreSQL is believed if its driver names the host, port and database that ours has; else (a
pooler, a socket, another spelling) it is asked for the number of its database and the identifier
of its server, which a standby shares with its primary, and its host, port and database are
remembered. What cannot be decided is accepted.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, TypeVar

from ...model.errors import WrongConnection
from ...ops.operation import Op, Rows, Statement
from ..base import Store
from ..dialects import SQLITE

T = TypeVar("T")

DatabaseIdentity = tuple[
    int, str | None
]  # a database's number; its server's identifier, if it may be read


def is_known(driver: Any, store: Store) -> bool:
    """Whether it surely leads to our database, as far as can be told without asking."""
    if store.address.dialect == SQLITE:
        return hasattr(driver, "identity")  # one of our own, lent to a handler
    with suppress(TypeError):  # some cannot be remembered
        if driver in store.callers:
            return True
    seat = _address(driver)
    return seat is not None and seat in store.addresses


def remember(driver: Any, store: Store) -> None:
    """It has been found to lead to our database."""
    if store.address.dialect == SQLITE:
        return
    with suppress(TypeError):
        store.callers.add(driver)
    if (seat := _address(driver)) is not None:
        store.addresses.add(seat)


def _address(driver: Any) -> tuple[str, int, str] | None:
    """Host, port and database, by the word of psycopg or asyncpg."""
    try:
        if hasattr(driver, "info"):
            return driver.info.host, int(driver.info.port), driver.info.dbname
        where = driver._addr
        host, port = (where, 0) if isinstance(where, str) else where  # a text: that of a socket
        return host, int(port), driver._params.database
    except Exception:
        return None


def in_our_database(op: Op[T], store: Store, ours: DatabaseIdentity | None, driver: Any) -> Op[T]:
    """The operation, after a look where it would be carried out."""
    if store.address.dialect == SQLITE:
        rows: Rows = yield Statement("database_files")
        main, *attached = [os.fsdecode(file) if file else "" for _, file in rows]
        if not _is_ours(main, store):
            theirs: Rows = yield Statement("main_tables")  # which would hide those of another file
            if theirs or not any(_is_ours(file, store) for file in attached):
                raise _elsewhere(main or "a database in memory", store)
    else:
        found = yield from database_of_caller()
        if ours is not None and _differ(ours, found):
            raise _elsewhere(_named(driver), store)
    return (yield from op)


def _named(driver: Any) -> str:
    """Which database of PostgreSQL a connection leads to, in words."""
    if (seat := _address(driver)) is None:
        return "another database"
    host, port, database = seat
    return f"the database {database!r} at {host}{f':{port}' if port else ''}"


def database_of_caller() -> Op[DatabaseIdentity]:
    """Which database of which server a connection leads to."""
    rows: Rows = yield Statement("database_number")
    number, may_ask = rows[0]
    if not may_ask:
        return int(number), None
    rows = yield Statement("server_identifier")
    return int(number), str(rows[0][0])


def _differ(ours: DatabaseIdentity, theirs: DatabaseIdentity) -> bool:
    if ours[0] != theirs[0]:
        return True
    return None not in (ours[1], theirs[1]) and ours[1] != theirs[1]


def _is_ours(file: str, store: Store) -> bool:
    assert store.address.path is not None
    try:
        return bool(file) and store.address.path.samefile(file)
    except OSError:
        return True  # a file that is gone tells nothing


def _elsewhere(where: str, store: Store) -> WrongConnection:
    return WrongConnection(
        reason=f"the connection given leads to {where}, but jobs are kept in {store.address}: they"
        " can only commit together in one database"
    )
