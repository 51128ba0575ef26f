"""`ctx.cancelled`: an event that knows whether its handler has seen it."""

from __future__ import annotations

import threading


class StopEvent(threading.Event):
    """`seen`: the handler knows that it should stop. If it then returns nothing, it has stopped."""

    seen = False

    def is_set(self) -> bool:
        self.seen = super().is_set()
        return self.seen

    def wait(self, timeout: float | None = None) -> bool:
        self.seen = super().wait(timeout)
        return self.seen
