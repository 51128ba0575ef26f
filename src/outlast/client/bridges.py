"""Verbs for outboxes and sources: the reports of workers, and the jobs in their queues."""

from __future__ import annotations

from dataclasses import replace

from ..ops import bridges, search
from ..ops.bridges import OUTBOX, SOURCE, BridgeState
from .faces import Face


async def outboxes(on: Face) -> list[BridgeState]:
    """The outboxes that workers have announced, with the jobs of their queues. Counts all jobs:
    call it rarely."""
    return await _with_counts(on, OUTBOX)


async def sources(on: Face) -> list[BridgeState]:
    """The sources that workers have run, with the jobs of their queues. Counts all jobs: call it
    rarely."""
    return await _with_counts(on, SOURCE)


async def _with_counts(on: Face, kind: str) -> list[BridgeState]:
    found = await on.run(bridges.bridges, kind)
    if not found:
        return []
    queues = {queue.name: queue for queue in await on.run(search.all_queues)}
    counted = []
    for one in found:
        own = [queues[name] for name in one.queues if name in queues]
        states = dict.fromkeys(state for queue in own for state in queue.counts)
        counted.append(
            replace(
                one,
                counts={state: sum(q.counts.get(state, 0) for q in own) for state in states},
                oldest=max((q.oldest for q in own if q.oldest is not None), default=None),
                paused=any(queue.paused for queue in own),
                breakers=[breaker.reason for queue in own for breaker in queue.breakers],
            )
        )
    return counted
