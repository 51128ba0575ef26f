"""Liveness and readiness, two separate checks.

Liveness: does this process make progress? A failure gets the process killed, so dependencies have
no influence: a database outage of an hour is no reason to kill a worker. Readiness: is everything
that the process needs available? A failure only pauses traffic to it.

The responses are public: no address, no user name, no error text.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from ..model.errors import OutlastError
from ..ops.report import schema_version
from ..store import Store
from ..worker.supervisor import Supervisor
from ..worker.worker import Worker

ANSWER_VALID_S = 1.0  # seconds for which a response of the database stays valid
ANSWER_WAIT_S = 2.0  # seconds to wait for a response
PROCESS_PAUSE_S = 5.0  # seconds between two pulses that show a pause of the whole process


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a process: ok, or the reasons why not."""

    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.reasons

    @property
    def status(self) -> int:
        return 200 if self.ok else 503

    def __str__(self) -> str:
        return "ok" if self.ok else "; ".join(self.reasons)


def worker_alive(worker: Worker) -> Health:
    """Whether the event loop and the heartbeat thread make progress."""
    now, limit = time.monotonic(), worker.settings.live_within
    reasons = []
    if (stalled_for := now - worker.shared.state.beat_at) > limit:
        reasons.append(f"the event loop has stood still for {stalled_for:.0f} s")
    leases = worker.leases
    if leases.started and not worker.stopping:  # it starts once the database is reached
        if not leases.alive:
            reasons.append("the thread that renews leases has ended")
        elif (stalled_for := now - leases.watchdog_at) > limit:
            reasons.append(f"the thread that renews leases has stood still for {stalled_for:.0f} s")
    return Health(tuple(reasons))


def worker_ready(worker: Worker) -> Health:
    if worker.stopping:
        return Health(("the worker is stopping",))
    return Health() if worker.leases.started else Health(("the worker has not begun",))


def supervisor_alive(supervisor: Supervisor, limit: float) -> Health:
    stalled_for = time.monotonic() - supervisor.beat_at
    return Health((f"it has stood still for {stalled_for:.0f} s",) if stalled_for > limit else ())


class DatabaseProbe:
    """Whether the database responds. Probed at most once a second, with a bounded wait, for any
    number of callers. For one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._probing: asyncio.Task[None] | None = None
        self._next_probe_at = 0.0
        self._health = Health(("the database has not been reached yet",))

    async def health(self) -> Health:
        if self._probing is None and time.monotonic() >= self._next_probe_at:
            self._probing = asyncio.create_task(self._probe())
        if (probing := self._probing) is not None:
            done, _ = await asyncio.wait({probing}, timeout=ANSWER_WAIT_S)
            if not done:
                return Health(("the database does not answer",))
        return self._health

    async def aclose(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    async def _probe(self) -> None:
        try:
            await self._store.arun(schema_version)
            self._health = Health()
        except OutlastError as error:
            # Only the type: the message may contain the address.
            self._health = Health((f"the database does not answer ({type(error).__name__})",))
        finally:
            self._probing = None
            self._next_probe_at = time.monotonic() + ANSWER_VALID_S
