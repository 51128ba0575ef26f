"""Django's connections around each run of a handler: nothing stale before it, nothing left after.

A worker has no requests, so Django's own clean-up at their start and end never happens: each thread
would keep its connection open for ever, and fail for ever once that was cut.
"""

from __future__ import annotations

import inspect
import logging
import select
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from ...worker.threads import THREAD_PREFIX

log = logging.getLogger("outlast.django")

Handler = Callable[..., Any]


def with_fresh_connections(function: Handler) -> Handler:
    """The function as a worker calls it."""
    if inspect.iscoroutinefunction(function):
        return _async_handler(function)

    @wraps(function)
    def run(**arguments: object) -> Any:
        close_stale()
        try:
            return function(**arguments)
        finally:
            close_stale()

    return run


def _async_handler(function: Handler) -> Handler:
    """Async handlers reach the database in asgiref's thread: only if they ever do, go there."""
    from asgiref.sync import sync_to_async

    @wraps(function)
    async def arun(**arguments: object) -> Any:
        if _used_elsewhere.is_set():
            await sync_to_async(close_stale)()
        try:
            return await function(**arguments)
        finally:
            if _used_elsewhere.is_set():
                await sync_to_async(close_stale)()

    return arun


_used_elsewhere = threading.Event()  # a connection was opened outside of the handlers' threads


def on_connection_created(**_: object) -> None:
    """Receiver of Django's signal `connection_created`."""
    if not threading.current_thread().name.startswith(THREAD_PREFIX):
        _used_elsewhere.set()


def close_stale() -> None:
    """Close this thread's connections that are too old or broken. Never raises: it must not change
    how a job ends."""
    from django.db import connections, reset_queries

    try:
        reset_queries()
        for connection in connections.all(initialized_only=True):
            connection.close_if_unusable_or_obsolete()
            if _may_be_cut(connection) and not connection.is_usable():
                connection.close()
    except Exception:
        log.exception("connections could not be closed")


def _may_be_cut(connection: Any) -> bool:
    """Whether the server has sent something to an idle connection, such as its end. Asks the
    operating system alone: a query for each job would be dear."""
    raw = connection.connection
    if raw is None or connection.in_atomic_block or not hasattr(raw, "fileno"):
        return False
    if raw.closed:
        return True
    watch = select.poll()
    watch.register(raw.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(watch.poll(0))
