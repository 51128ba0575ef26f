"""Shutdown of a worker: running jobs may end within the grace time; the others are released,
unspent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from ..model.lifecycle import Outcome
from .protocols import OutcomeSink
from .runner import JobRunner
from .shared import WorkerShared

log = logging.getLogger("outlast.worker")

ABANDON_AFTER_S = 0.25  # from asking handlers to stop until they are abandoned

Step = Callable[[], Awaitable[None]]  # one cycle of the worker


async def drain(
    shared: WorkerShared, runner: JobRunner, sink: OutcomeSink, step: Step, report_within: float
) -> None:
    state, in_flight, wakeup = shared.state, shared.in_flight, shared.wakeup

    async def step_or_pause(until: float) -> None:
        if sink:
            await step()
        else:
            await wakeup.wait(min(0.5, max(0.0, until - time.monotonic())))

    deadline = time.monotonic() + state.settings.grace
    runner.batches.release(runner.interrupt)
    runner.release_unstarted()
    while in_flight.running() and time.monotonic() < deadline and not state.stop_now:
        await step_or_pause(deadline)
    for held in in_flight.running():
        runner.interrupt(held, Outcome.RELEASED)
    left_at = time.monotonic() + (ABANDON_AFTER_S / 2 if state.stop_now else ABANDON_AFTER_S)
    while in_flight.running() and time.monotonic() < left_at:
        await step_or_pause(left_at)
    for held in in_flight.running():
        runner.abandon(held)
    await _flush(sink, time.monotonic() + report_within)


async def _flush(sink: OutcomeSink, deadline: float) -> None:
    """Report the last outcomes; other workers reclaim jobs that cannot be reported now."""
    logged = False
    while sink and time.monotonic() < deadline:
        try:
            await sink.flush()
        except Exception as error:
            level = logging.DEBUG if logged else logging.WARNING  # one line, not one per try
            log.log(level, "%s; %d outcomes wait", error, len(sink))
            logged = True
            await asyncio.sleep(0.1)
