"""`ctx.cancelled`: an event that knows whether its handler has seen it."""

from __future__ import annotations

import threading


class StopEvent(threading.Event):
    """`seen`: the handler knows that it should stop. If it then returns nothing, it has stopped."""

    seen = False

    def is_set(self) -> bool:
        return self._note(super().is_set())

    def wait(self, timeout: float | None = None) -> bool:
        return self._note(super().wait(timeout))

    def _note(self, is_set: bool) -> bool:
        if is_set:  # another thread of the handler, which looked before, must not undo it
            self.seen = True
        return is_set
