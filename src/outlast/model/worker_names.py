"""Names of workers: the owner in a job's row tells offered jobs from accepted ones.

    ready ── claim ──▶ offered ── first renewal ──▶ accepted ── finish ──▶ …
               ▲           │
               └───────────┘ not accepted in time, or its server is gone: released, unspent

While a job is only offered, a server owns it under a short lease, and no worker runs it. Such an
attempt never began, so a reclaim charges nothing.
"""

from __future__ import annotations

from .ids import new_instance_id

OFFER_PREFIX = "offer-"  # of a server that offers jobs
REMOTE_PREFIX = "remote-"  # of a remote worker


def new_server_id() -> str:
    """The id of a server that offers jobs, new at every start."""
    return f"{OFFER_PREFIX}{new_instance_id()}"


def is_offer(worker: str | None) -> bool:
    """Whether the owner of a job is a server that only offers it."""
    return worker is not None and worker.startswith(OFFER_PREFIX)


def is_remote(worker: str) -> bool:
    """Whether the name is a remote worker's, or a server's that offers jobs to remote workers."""
    return worker.startswith((OFFER_PREFIX, REMOTE_PREFIX))


def remote_id(owner: str, name: str) -> str:
    """A remote worker's name in the tables: its owner and its own name, so that no client can
    impersonate another client's worker."""
    return f"{REMOTE_PREFIX}{owner}-{name}"
