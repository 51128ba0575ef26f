"""Two questions that must not be mixed up.

Alive: does this process make progress of its own? Whoever hears "no" kills it, so nothing that
it depends on has a say: a database that is away for an hour is no reason to kill a worker.
Ready: is all that it needs there? Whoever hears "no" waits, and sends nothing here meanwhile.

What is said of either is for anybody to hear: no address, no name of a user, no text of an error.
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

KNOWN = 1.0  # seconds for which an answer of the database is as good as a new one
PATIENCE = 2.0  # seconds to wait for one
PAUSED = 5.0  # seconds between two pulses that mean a pause of the whole process


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, if there is no reason against it."""

    against: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.against

    @property
    def status(self) -> int:
        return 200 if self.good else 503

    def __str__(self) -> str:
        return "ok" if self.good else "; ".join(self.against)


def worker_alive(worker: Worker) -> Verdict:
    """Its event loop goes round, and so does the thread that renews."""
    now, limit = time.monotonic(), worker.settings.live_within
    against = []
    if (still := now - worker.beat_at) > limit:
        against.append(f"the event loop has stood still for {still:.0f} s")
    keeper = getattr(worker, "keeper", None)  # it comes when the database has been reached
    if keeper is not None and not worker.stopping:
        if not keeper.alive:
            against.append("the thread that renews leases has ended")
        elif (still := now - keeper.pulse_at) > limit:
            against.append(f"the thread that renews leases has stood still for {still:.0f} s")
    return Verdict(tuple(against))


def worker_ready(worker: Worker) -> Verdict:
    if worker.stopping:
        return Verdict(("the worker is stopping",))
    return Verdict() if hasattr(worker, "keeper") else Verdict(("the worker has not begun",))


def supervisor_alive(supervisor: Supervisor, limit: float) -> Verdict:
    still = time.monotonic() - supervisor.beat_at
    return Verdict((f"it has stood still for {still:.0f} s",) if still > limit else ())


class Contact:
    """Whether the database answers. Asked at most once a second, and never waited for for long,
    whoever asks. For one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking: asyncio.Task[None] | None = None
        self._again_at = 0.0
        self._verdict = Verdict(("the database has not been reached yet",))

    async def verdict(self) -> Verdict:
        if self._asking is None and time.monotonic() >= self._again_at:
            self._asking = asyncio.create_task(self._ask())
        if (asking := self._asking) is not None:
            done, _ = await asyncio.wait({asking}, timeout=PATIENCE)
            if not done:
                return Verdict(("the database does not answer",))
        return self._verdict

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _ask(self) -> None:
        try:
            await self._store.arun(schema_version)
            self._verdict = Verdict()
        except OutlastError as error:
            # Its kind alone: what it says may name the address.
            self._verdict = Verdict((f"the database does not answer ({type(error).__name__})",))
        finally:
            self._asking = None
            self._again_at = time.monotonic() + KNOWN
