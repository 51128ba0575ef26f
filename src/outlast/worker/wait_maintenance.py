"""Wait maintenance: start jobs whose waits have timed out, or whose signals came in a caller's own
transaction."""

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
        """One pass. Signals first: one that is there wins over a time-out."""
        for wake in (deliver_signals, wake_timed_out):
            woken = await self._sweeper.sweep(wake)
            if woken.queues:
                self._signals.ready(woken.queues)
