"""Check that a caller's connection leads to the database that holds the jobs.

A job can only commit with the caller's rows if both are in one database. Another file or server may
have tables of the same names: the job would be stored where no worker polls.

A SQLite connection reports its files each time, from memory. A connection to PostgreSQL is
accepted if its driver names the host, port and database of the store's own. Otherwise (a pooler, a
socket, another spelling) its database's oid and its server's system identifier, which a standby
shares with its primary, are compared, and its host, port and database are remembered. An
undecidable connection is accepted.
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

DatabaseIdentity = tuple[int, str | None]  # a database's oid; its server's identifier, if readable


def is_known(driver: Any, store: Store) -> bool:
    """Whether a connection is known to lead to the store's database, without a query."""
    if store.leads_here(driver):
        return True
    if store.address.dialect == SQLITE:
        return hasattr(driver, "identity")  # a connection of the store, lent to a handler
    with suppress(TypeError):  # some classes have no weak references
        if driver in store.callers:
            return True
    seat = _address(driver)
    return seat is not None and seat in store.addresses


def remember(driver: Any, store: Store) -> None:
    """Remember that a connection leads to the store's database."""
    if store.address.dialect == SQLITE:
        return
    with suppress(TypeError):
        store.callers.add(driver)
    if (seat := _address(driver)) is not None:
        store.addresses.add(seat)


def _address(driver: Any) -> tuple[str, int, str] | None:
    """Host, port and database as reported by psycopg or asyncpg."""
    try:
        if hasattr(driver, "info"):
            return driver.info.host, int(driver.info.port), driver.info.dbname
        where = driver._addr
        host, port = (where, 0) if isinstance(where, str) else where  # text: the path of a socket
        return host, int(port), driver._params.database
    except Exception:
        return None


def in_our_database(op: Op[T], store: Store, ours: DatabaseIdentity | None, driver: Any) -> Op[T]:
    """The operation, after a check of its connection's database."""
    if store.address.dialect == SQLITE:
        rows: Rows = yield Statement("database_files")
        main, *attached = [os.fsdecode(file) if file else "" for _, file in rows]
        if not _is_ours(main, store):
            theirs: Rows = yield Statement("main_tables")  # would hide tables of other files
            if theirs or not any(_is_ours(file, store) for file in attached):
                raise _elsewhere(main or "a database in memory", store)
    else:
        found = yield from database_of_caller()
        if ours is not None and _differ(ours, found):
            raise _elsewhere(_named(driver), store)
    return (yield from op)


def _named(driver: Any) -> str:
    """The PostgreSQL database of a connection, for messages."""
    if (seat := _address(driver)) is None:
        return "another database"
    host, port, database = seat
    return f"the database {database!r} at {host}{f':{port}' if port else ''}"


def database_of_caller() -> Op[DatabaseIdentity]:
    """The identity of the database and server of a connection."""
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
        return True  # a missing file proves nothing


def _elsewhere(where: str, store: Store) -> WrongConnection:
    return WrongConnection(
        reason=f"the connection given leads to {where}, but jobs are kept in {store.address}: they"
        " can only commit together in one database"
    )
