"""Who opened a stream, and for what."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps

from ...model.breaker import Circuit
from ...version import VERSION


@dataclass(frozen=True, slots=True)
class RemoteWorkerInfo:
    worker: str  # its name in our tables
    host: str
    pid: int
    queues: frozenset[str] | None
    tasks: tuple[str, ...]
    tenant: str | None
    credit: int  # jobs that it can hold at once

    def may_probe(self, circuit: Circuit) -> bool:
        """Whether it may probe a breaker, which is everybody's: workers of one tenant neither open
        nor close it."""
        served = self.queues is None or circuit.queue in self.queues
        return self.tenant is None and served and circuit.task in self.tasks

    def registration(self, lease: float) -> dict[str, object]:
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
