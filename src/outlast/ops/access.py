"""Whose jobs a caller may see and change: part of every statement that serves one."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Access:
    """One tenant's jobs, or everybody's; those of some queues, or of all. What is out of reach is
    not there."""

    tenant: str | None = None
    queues: frozenset[str] | None = None

    @classmethod
    def of(cls, tenant: str | None, queues: Collection[str] | None) -> Access:
        return cls(tenant, None if queues is None else frozenset(queues))

    @property
    def params(self) -> dict[str, Any]:
        """For the fragment `in_reach`."""
        names = None if self.queues is None else json.dumps(sorted(self.queues))
        return {"tenant": self.tenant, "queues": names}

    def allows(self, tenant: str, queue: str) -> bool:
        return self.tenant in (None, tenant) and (self.queues is None or queue in self.queues)


ALL_JOBS = Access()
