"""The state that the parts of one worker share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from ..model.settings import WorkerSettings

Label = Literal["working", "draining"]


@dataclass(slots=True)
class WorkerState:
    """Written in the worker's event loop, or by `Worker.stop`; read from any thread."""

    id: str
    settings: WorkerSettings  # a remote worker's leases are those of its server
    queues: list[str] | None = None  # None: all
    label: Label = "working"  # as the table of workers shows it
    stopping: bool = False
    draining: bool = False  # on request: it keeps running, but claims nothing
    stop_now: bool = False  # without the grace time
    owns_process: bool = False  # False: it runs inside another program
    beat_at: float = field(default_factory=time.monotonic)  # the event loop's last heartbeat

    @property
    def claims(self) -> bool:
        return not (self.stopping or self.draining)

    def stop(self) -> None:
        """Stop; a second call skips the grace time."""
        self.stop_now = self.stop_now or self.stopping
        self.stopping = True
        self.label = "draining"

    def drain(self, requested: bool) -> None:
        self.draining = requested
        if not self.stopping:
            self.label = "draining" if requested else "working"
