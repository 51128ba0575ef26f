"""The context of a batch handler: those of its jobs, and whether the call should stop."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

from .context import Context


class BatchContext:
    """Given to a batch handler that has a parameter annotated `BatchContext`.

    `items` are the contexts of the jobs, in the order of the list: each knows its own job, says its
    own progress and enqueues with its own success. `cancelled` is set when the call should stop,
    because nobody waits for any of its items any more; one item's own says only that of the item.
    """

    def __init__(self, items: Sequence[Context], cancelled: threading.Event) -> None:
        self.items = tuple(items)
        self.cancelled = cancelled

    @property
    def ticks(self) -> tuple[datetime | None, ...]:
        """The nominal times of the items, in their order: of each that a schedule made, in UTC,
        and None for any other."""
        return tuple(item.tick for item in self.items)
