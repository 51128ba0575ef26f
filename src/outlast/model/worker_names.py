"""Jobs on their way to a remote worker: who has them, by the name in the row.

    ready ── claim ──▶ offered ── first renewal ──▶ accepted ── finish ──▶ …
               ▲           │
               └───────────┘ not accepted in time, or its server is gone: back, unspent

While a job is merely offered, a server owns it under a short lease, and nobody runs it. So whatever
takes it back then takes back an attempt that never began: nothing is charged for it.
"""

from __future__ import annotations

from .ids import new_instance_id

OFFER_PREFIX = "offer-"  # what the name of a server that offers jobs begins with
REMOTE_PREFIX = "remote-"  # and that of a remote worker


def new_server_id() -> str:
    """Who a server is that offers jobs, anew at every start."""
    return f"{OFFER_PREFIX}{new_instance_id()}"


def is_offer(worker: str | None) -> bool:
    """Whether the owner of a job is a server that merely offers it."""
    return worker is not None and worker.startswith(OFFER_PREFIX)


def is_remote(worker: str) -> bool:
    """Whether a name is a remote worker's, or that of a server which offers jobs to them."""
    return worker.startswith((OFFER_PREFIX, REMOTE_PREFIX))


def remote_id(owner: str, name: str) -> str:
    """A remote worker's name in our tables: whose it is, and what it calls itself. So nobody can
    pass for a worker of somebody else."""
    return f"{REMOTE_PREFIX}{owner}-{name}"
