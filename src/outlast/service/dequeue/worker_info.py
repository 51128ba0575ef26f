"""A remote worker: its identity, tasks, queues and credit."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps

from ...model.breaker import Circuit
from ...model.settings import ServiceSettings
from ...protocol import FrameFields
from ...version import VERSION


@dataclass(frozen=True, slots=True)
class RemoteWorkerInfo:
    worker: str  # its name in the tables
    host: str
    pid: int
    queues: frozenset[str] | None
    tasks: tuple[str, ...]
    tenant: str | None
    credit: int  # maximum jobs that it holds

    def may_probe(self, circuit: Circuit) -> bool:
        """Whether the worker may probe a breaker. Breakers are shared by all tenants: workers of
        one tenant neither open nor close them."""
        served = self.queues is None or circuit.queue in self.queues
        return self.tenant is None and served and circuit.task in self.tasks

    def registration(self, lease: float) -> dict[str, object]:
        """The worker's row in the table of workers."""
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

    def hello(self, terms: ServiceSettings) -> FrameFields:
        """The first frame of its stream: what the server grants."""
        return {
            "type": "hello",
            "worker": self.worker,
            "credit": self.credit,
            "lease": terms.remote_lease,
            "offer_lease": terms.offer_lease,
            "keep_alive": terms.keep_alive,
            "traces": True,  # reports may have a `trace`
        }
