"""Drain: run jobs in this process, on the real store, until nothing is due.

    start ─▶ run due jobs ──▶ renew, expire, fire schedules ─▶ more due? ────┐
              ▲                                                   │ no       │ yes
              │◀──────────────────────────────────────────────────┼──────────┘
              └── move the clock to the next due time ◀─ `until` ─┘ ─▶ summary

The parts are those of a worker, without its heartbeat thread. One job runs at a time, in the order
of the queue, so that a test gives the same result each time. Nothing sleeps: the clock of the store
moves instead.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from ..client.verb_arguments import check_names
from ..model.errors import InvalidOption
from ..model.settings import WorkerSettings
from ..ops.idle import NextMoments, next_moments
from ..store.dialects import POSTGRES
from ..store.moved_clock import movable_clock
from ..worker.job_source import DatabaseSource
from ..worker.local import local_worker
from ..worker.shutdown import drain as shut_down
from .clock import Span, to_moment
from .inline_leases import InlineLeases, inline_leases
from .summary import Drained, JobsFailed, RecordedOutcomes

if TYPE_CHECKING:
    from ..client.client import Outlast

Until = Span | datetime | Literal["finished"]

MAX_IDLE_TRAVEL_S = 31 * 86400.0  # maximum time without progress behind a rate limit or a breaker
CLOCK_MARGIN_S = 0.001  # beyond the time that the clock moves to
SETTINGS = WorkerSettings(
    concurrency=1, lease=86400.0, renew_every=0.05, grace=0.0, poll_min=0.001, poll_max=0.01,
    sources=False,
)  # fmt: skip


class NotIdle(AssertionError):
    """A drain found no end: jobs enqueue others without end, or wait for something outside."""


def drain(
    ol: Outlast,
    until: Until | None = None,
    *,
    queues: Iterable[str] | str | None = None,
    raises: bool = False,
    limit: int = 10_000,
    timeout: float = 60.0,
) -> Drained:
    """Run every job that is due, and those that they enqueue, until nothing is due.

    With `until` time passes, too: retries, delayed jobs and schedules run in their order, each at
    its time, up to a duration from now ("1h") or a time, where the store's clock stays afterwards.
    `until="finished"` goes as far as unfinished jobs need, and no further for schedules.

    With `raises`, an attempt that failed raises `JobsFailed`, with the traceback. More than `limit`
    attempts, or `timeout` seconds, raise `NotIdle`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise InvalidOption(
            option="drain", reason="would block the running event loop: use await adrain(…)"
        )

    return asyncio.run(
        adrain(ol, until, queues=queues, raises=raises, limit=limit, timeout=timeout)
    )


async def adrain(
    ol: Outlast,
    until: Until | None = None,
    *,
    queues: Iterable[str] | str | None = None,
    raises: bool = False,
    limit: int = 10_000,
    timeout: float = 60.0,
) -> Drained:
    """The same in a running event loop."""
    chosen = None if queues is None else check_names("queue", queues)
    running = Drain(ol, chosen, limit)
    try:
        async with asyncio.timeout(timeout):
            await running.run(until)
    except TimeoutError:
        raise NotIdle(f"not idle after {timeout:g} s: {running.status()}") from None
    finally:
        await running.aclose()
    drained = running.outcomes.summary(await ol.acounts())
    if ol.store.address.dialect == POSTGRES:
        await ol.store.aclose()  # its connections belong to this event loop, which may end now
    if raises and drained.failures:
        raise JobsFailed(drained)
    return drained


@dataclass(slots=True)
class _Travel:
    """How far the clock may move; None: as far as unfinished jobs need."""

    until: float | None
    stalled_s: float = 0.0  # seconds moved for a rate or a breaker since a job last ran

    def target(self, moments: NextMoments, refill: float | None) -> float | None:
        """The next time at which there may be something to do."""
        schedule = None if self.until is None else moments.schedule
        due = [moments.job, moments.expiry, moments.wait, schedule]
        if self.stalled_s < MAX_IDLE_TRAVEL_S:
            due.append(moments.probe)
            if refill is not None:
                due.append(moments.clock + max(refill, self.stalled_s))
        ahead = [moment for moment in due if moment is not None and moment > moments.clock]
        return min(ahead, default=None)


class Drain:
    def __init__(self, ol: Outlast, queues: list[str] | None, limit: int) -> None:
        self._ol = ol
        self._limit = limit
        self._clock = movable_clock(ol.store)
        self.outcomes = RecordedOutcomes()
        self._worker = worker = local_worker(ol, queues, SETTINGS, inline_leases, self.outcomes)
        assert isinstance(worker.source, DatabaseSource)
        assert isinstance(worker.leases, InlineLeases)
        self._source, self._leases = worker.source, worker.leases
        self._source.on_idle = self._on_idle
        self._shared = worker.shared
        self._is_idle = False
        self._claimed: Counter[str] = Counter()  # attempts by task

    async def run(self, until: Until | None) -> None:
        self._shared.wakeup.open()
        await self._source.open()
        for service in self._shared.services:
            await service.start()
        travel = None if until is None else await self._travel_to(until)
        while True:
            await self._run_due()
            if travel is None or not await self._travel(travel):
                return

    async def _travel_to(self, until: Until) -> _Travel:
        if until == "finished":
            return _Travel(None)
        return _Travel(to_moment("until", until, (await self._moments()).clock))

    async def _run_due(self) -> None:
        """Run jobs and maintenance until neither finds anything to do."""
        while True:
            await self._leases.heartbeat()
            before = self.outcomes.counts["claimed"]
            await self._run_ready()
            if self.outcomes.counts["claimed"] == before:
                return

    async def _run_ready(self) -> None:
        self._is_idle = False
        self._source.poller.resume()
        while not self._is_idle:
            await self._source.cycle()
            if self._shared.in_flight.running():
                await self._leases.heartbeat()
            if self.outcomes.counts["claimed"] > self._limit:
                raise NotIdle(f"more than {self._limit} attempts: {self.status()}")

    async def _on_idle(self) -> bool:
        self._is_idle = True
        return True

    async def _travel(self, travel: _Travel) -> bool:
        """Move the clock to the next due time; False: nothing is due before the end."""
        moments, refill = await self._moments(), self._source.poller.idle_signs.refill
        end = math.inf if travel.until is None else travel.until
        target = travel.target(moments, refill)
        if target is None or target > end:
            if math.isfinite(end) and end > moments.clock:
                self._clock.advance(end - moments.clock)
            return False
        step = target - moments.clock
        claimed = self.outcomes.counts["claimed"]
        travel.stalled_s = 0.0 if claimed > self._claimed["all"] else travel.stalled_s + step
        self._claimed["all"] = claimed
        self._clock.advance(step + CLOCK_MARGIN_S)
        return True

    async def _moments(self) -> NextMoments:
        return await self._ol.store.arun(next_moments, self._ol.registry.names())

    def status(self) -> str:
        """The running tasks, and the number of attempts so far."""
        tasks = Counter(held.claim.task for held in self._shared.in_flight.running())
        running = ", ".join(f"{task} × {n}" for task, n in tasks.most_common(5)) or "nothing"
        return f"{self.outcomes.counts['claimed']} attempts so far, running: {running}"

    async def aclose(self) -> None:
        """Release jobs that still run, and deregister."""
        self._shared.state.stop()
        worker = self._worker
        try:
            for service in self._shared.services:
                await service.stop()
            await shut_down(self._shared, worker.executor, worker.sink, worker.step, 5.0)
            for service in self._shared.services:
                await service.aclose()
        finally:
            self._shared.threads.shutdown(wait=False)
            await self._source.leave()
            await self._source.aclose()
