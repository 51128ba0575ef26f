"""Who opened a stream, and for what."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps

from ...version import VERSION


@dataclass(frozen=True, slots=True)
class Asker:
    worker: str  # its name in our tables
    host: str
    pid: int
    queues: frozenset[str] | None
    tasks: tuple[str, ...]
    tenant: str | None
    credit: int  # jobs that it can hold at once

    def card(self, lease: float) -> dict[str, object]:
        """As any worker shows it."""
        return {
            "id": self.worker,
            "host": self.host,
            "pid": self.pid,
            "queues": None if self.queues is None else dumps(sorted(self.queues)),
            "tasks": dumps(self.tasks),
            "concurrency": self.credit,
            "version": VERSION,
            "lease": lease,
        }
