"""Fork safety: resources that must not cross a fork.

A child that inherits an open SQLite connection, even an unused one, inherits SQLite's belief that
this process holds the file's locks, although locks do not survive a fork. Connections that the
child opens itself are then unprotected, and commits vanish. So all connections are closed before a
fork and reopened on demand, on both sides. Locks and threads do not survive a fork either: the
child gets new ones.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    def close_borrowed(self) -> None:
        """Close connections that would block others, before any lock is waited for."""

    def before_fork(self) -> None:
        """Close resources that must not be inherited, and keep them closed."""

    def after_fork_here(self) -> None:
        """In the parent: resume."""

    def after_fork_in_child(self) -> None:
        """In the child: start over, without the threads and locks of the parent."""


_registered: WeakSet[ForkAware] = WeakSet()
_held: list[ForkAware] = []  # during a fork
_one_at_a_time = threading.Lock()


def register(one: ForkAware) -> None:
    """Notify this object of every fork, for as long as it lives."""
    _registered.add(one)


def registered() -> list[ForkAware]:
    """All registered objects."""
    return list(_registered)


def _before() -> None:
    _one_at_a_time.acquire()
    _held[:] = _registered
    for one in _held:
        one.close_borrowed()
    for one in _held:
        one.before_fork()


def _after_here() -> None:
    for one in _held:
        one.after_fork_here()
    _held.clear()
    _one_at_a_time.release()


def _after_in_child() -> None:
    global _one_at_a_time  # noqa: PLW0603
    _one_at_a_time = threading.Lock()
    for one in _held:
        one.after_fork_in_child()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_here, after_in_child=_after_in_child)
