"""Wait maintenance: wake jobs whose waits have timed out, or whose signals were sent in a caller's
own transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops.wake_ups import deliver_signals, wake_timed_out
from .sweeper import Sweeper

if TYPE_CHECKING:
    from .maintenance import Signals


class WaitMaintenance:
    def __init__(self, sweeper: Sweeper, signals: Signals) -> None:
        self._sweeper = sweeper
        self._signals = signals

    async def run_once(self) -> None:
        """Deliver signals, then time-outs: a signal that was sent in time wins."""
        for wake in (deliver_signals, wake_timed_out):
            woken = await self._sweeper.sweep(wake)
            if woken.queues:
                self._signals.ready(woken.queues)
