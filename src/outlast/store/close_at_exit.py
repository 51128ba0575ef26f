"""Close open stores at exit: scripts need not do it, and Python's development mode shows no
warnings."""

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
        with suppress(Exception):  # the program ends, and its work is committed
            store.close()
