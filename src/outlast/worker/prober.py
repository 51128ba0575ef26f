"""Probes: when a circuit breaker is due, one job of its task is tried."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ..model.breaker import Breaker, Circuit, OpenBreaker
from ..model.claim import Claim
from ..ops.breakers import take_probe
from ..store import Store
from .breaker import Breakers
from .failure_log import log_failure
from .poller import Poller
from .row_errors import is_away
from .runner import JobRunner
from .shared import WorkerShared


class Prober:
    def __init__(
        self,
        store: Store,
        shared: WorkerShared,
        breakers: Breakers,
        runner: JobRunner,
        poller: Poller,
    ) -> None:
        self._store = store
        self._shared = shared
        self._breakers = breakers
        self._runner = runner
        self._poller = poller
        breakers.on_open, breakers.on_close = self._opened, self._closed

    def due(self, most: int) -> Iterable[OpenBreaker]:
        return self._breakers.due(self._may_probe, most)

    async def probe(self, opened: OpenBreaker) -> list[Claim]:
        """Claim a job of the task, if no other worker does."""
        shared = self._shared
        breaker = self._runner.registry[opened.circuit.task].breaker or Breaker()
        wait = breaker.wait(opened.probes + 1, random.random())
        last_life, lease = not shared.in_flight.suspects, shared.state.settings.lease
        try:
            claims: list[Claim] = await self._store.arun(
                take_probe, opened, shared.state.id, lease, wait, last_life
            )
        except Exception as error:
            if is_away(error):
                raise
            log_failure(shared.metrics, f"probing {opened.circuit} failed", error)
            return []
        if claims:
            self._breakers.probed(opened, claims[0])
        return claims

    def _opened(self, circuit: Circuit) -> None:
        self._runner.hold_back(circuit)
        self._shared.wakeup.set()

    def _closed(self, circuit: Circuit) -> None:
        self._poller.reopen(circuit.queue)
        self._shared.wakeup.set()

    def _may_probe(self, circuit: Circuit) -> bool:
        known = self._runner.registry.get(circuit.task) is not None
        return known and self._poller.serves(circuit.queue)
