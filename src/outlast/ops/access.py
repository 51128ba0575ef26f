"""Access: whose jobs a caller may see and change; part of every statement that serves a caller."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """The jobs of one tenant or of all, in some queues or in all. Other jobs do not exist for the
    caller."""

    tenant: str | None = None
    queues: frozenset[str] | None = None

    @classmethod
    def of(cls, tenant: str | None, queues: Collection[str] | None) -> Access:
        return cls(tenant, None if queues is None else frozenset(queues))

    @property
    def params(self) -> dict[str, object]:
        """Parameters of the fragment `in_reach`."""
        names = None if self.queues is None else json.dumps(sorted(self.queues))
        return {"tenant": self.tenant, "queues": names}

    def allows(self, tenant: str, queue: str) -> bool:
        return self.tenant in (None, tenant) and (self.queues is None or queue in self.queues)


ALL_JOBS = Access()
