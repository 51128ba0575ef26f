"""Fork safety: resources that must not cross a fork.

A child that inherits an open SQLite connection, even an unused one, inherits SQLite's belief that
this process holds the file's locks, although locks do not survive a fork. Connections that the
child opens itself are then unprotected, and commits vanish. So all connections are closed before a
fork and reopened on demand, on both sides. Locks and threads do not survive a fork either: the
child gets new ones.

Python's own locks of modules are inherited as they are: a child that is forked while another thread
imports a module waits for ever when it imports that module itself. Many modules are imported at
first use, so a fork waits until no other thread imports.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType
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


IMPORT_WAIT_S = 1.0  # maximum seconds: a program that runs during its own import never ends it
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"

_registered: WeakSet[ForkAware] = WeakSet()
_held: list[ForkAware] = []  # during a fork
_one_at_a_time = threading.Lock()


def register(one: ForkAware) -> None:
    """Notify this object of every fork, for as long as it lives."""
    _registered.add(one)


def registered() -> list[ForkAware]:
    """All registered objects."""
    return list(_registered)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != IMPORT_SYSTEM:
        frame = frame.f_back
    return frame is not None


def _importing_elsewhere() -> bool:
    """True if another thread imports a module."""
    me = threading.get_ident()
    return any(_is_importing(frame) for id, frame in sys._current_frames().items() if id != me)


def _wait_for_imports() -> None:
    until = time.monotonic() + IMPORT_WAIT_S
    while _importing_elsewhere() and time.monotonic() < until:
        time.sleep(0.001)  # there is no event for the end of an import


def _before() -> None:
    _wait_for_imports()
    _one_at_a_time.acquire()
    _held[:] = _registered
    for one in _held:
        one.close_borrowed()
    for one in _held:
        one.before_fork()
    _wait_for_imports()  # of threads that were busy while this one waited for their locks


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
