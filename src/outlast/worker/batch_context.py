"""Context of a batch handler: the contexts of its jobs, and the cancellation of the call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

from .context import Context


class BatchContext:
    """Passed to a batch handler that has a parameter annotated `BatchContext`.

    `items` are the contexts of the jobs, in the order of the list: each has its own job, reports
    its own progress and enqueues with its own success. `cancelled` is set when the call should
    stop, because all of its items have been stopped; an item's own `cancelled` is only about that
    item.
    """

    def __init__(self, items: Sequence[Context], cancelled: threading.Event) -> None:
        self.items = tuple(items)
        self.cancelled = cancelled

    @property
    def ticks(self) -> tuple[datetime | None, ...]:
        """The nominal times of the items, in their order: in UTC for jobs that a schedule fired,
        None for others."""
        return tuple(item.tick for item in self.items)
