"""Stores that nobody closed are closed when the program ends: a script need not do it, and Python's
development mode has nothing to complain of."""

from __future__ import annotations

import atexit
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Closable(Protocol):
    def close(self) -> None: ...


_open: WeakSet[Closable] = WeakSet()


def close_at_exit(store: Closable) -> None:
    _open.add(store)


@atexit.register
def _close_all() -> None:
    for store in list(_open):
        with suppress(Exception):  # the program is ending, and whatever it did is committed
            store.close()
