"""Objects that callers pass instead of a connection by mistake, and the advice for each."""

from __future__ import annotations

_ACQUIRE = "`async with pool.acquire() as conn, conn.transaction():`"
_ADVICE = {
    ("asyncpg", "Pool"): f"a pool is not a transaction: pass one of its connections ({_ACQUIRE})",
    ("asyncpg", "PoolAcquireContext"): "this is pool.acquire() before it has lent a connection:"
    f" pass the connection ({_ACQUIRE})",
    ("psycopg_pool", "BasePool"): "a pool is not a transaction: pass one of its connections"
    " (`with pool.connection() as conn:`)",
    ("sqlalchemy", "Engine"): "an engine is not a transaction: pass one of its connections"
    " (`with engine.begin() as conn:`) or a Session",
    ("sqlalchemy", "AsyncEngine"): "an engine is not a transaction: pass one of its connections"
    " (`async with engine.begin() as conn:`) or an AsyncSession",
    ("sqlalchemy", "sessionmaker"): "a sessionmaker is not a session: call it"
    " (`with maker.begin() as session:`)",
    ("sqlalchemy", "async_sessionmaker"): "a sessionmaker is not a session: call it"
    " (`async with maker.begin() as session:`)",
    ("psycopg", "BaseCursor"): "this is a cursor: pass its connection (`cursor.connection`)",
    ("sqlite3", "Cursor"): "this is a cursor: pass its connection (`cursor.connection`)",
    ("django", "CursorWrapper"): "this is a cursor: pass `django.db.connection`",
    ("django", "ConnectionHandler"): "these are all of Django's connections: pass one of them"
    " (`connections['default']`)",
}


def suggestion_for(thing: object) -> str | None:
    """The advice for this object; None if it may be a connection."""
    for cls in type(thing).__mro__:
        family = cls.__module__.partition(".")[0]
        if (advice := _ADVICE.get((family, cls.__name__))) is not None:
            return advice
    return None
