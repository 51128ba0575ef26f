"""Stale connections: close Django's unusable connections before and after each run of a handler.

A worker has no requests, so Django's clean-up at their start and end never runs: each thread would
keep its connection open for ever, and fail for ever once the connection was cut.
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
    """Wrap a handler for a worker."""
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
    """Wrap an async handler. It uses the database in asgiref's thread: switch there only if it
    has."""
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


_used_elsewhere = threading.Event()  # set once a connection was opened outside of handler threads


def on_connection_created(**_: object) -> None:
    """Receiver of Django's signal `connection_created`."""
    if not threading.current_thread().name.startswith(THREAD_PREFIX):
        _used_elsewhere.set()


def close_stale() -> None:
    """Close this thread's connections that are too old or broken. Never raises, so that it does not
    change the outcome of a job."""
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
    """Whether the server has sent data to an idle connection, such as its end. Checks only the
    socket: a query for each job would be expensive."""
    raw = connection.connection
    if raw is None or connection.in_atomic_block or not hasattr(raw, "fileno"):
        return False
    if raw.closed:
        return True
    watch = select.poll()
    watch.register(raw.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(watch.poll(0))
