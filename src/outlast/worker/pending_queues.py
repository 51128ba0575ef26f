"""The queues that have jobs, read from the database."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from ..ops.claim import PendingQueues, poll, poll_queues, promote
from ..store import Store

MAX_NAMED_QUEUES = 1000  # queues of a worker that are polled by name


async def read_pending(store: Store, queues: Collection[str] | None = None) -> PendingQueues:
    """Find the queues that have jobs, among all or these; due jobs are made ready first. A limited
    number of queues is looked up by name, so that other queues cost nothing."""
    few = queues is not None and len(queues) <= MAX_NAMED_QUEUES
    operation = partial(poll_queues, sorted(queues)) if few and queues is not None else poll
    pending: PendingQueues = await store.arun(operation)
    if pending.due:
        await store.arun(promote)
        pending = await store.arun(operation)
    return pending
