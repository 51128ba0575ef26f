"""How a worker ends: what runs may end within the grace time, and the rest is put back, unspent."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from ..model.lifecycle import Outcome

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

LAST_WORDS = 0.25  # seconds from telling handlers to stop until they are left behind


async def let_end(worker: Worker) -> None:
    deadline = time.monotonic() + worker.settings.grace
    carrier, hands = worker.carrier, worker.hands
    carrier.batches.release(carrier.interrupt)
    carrier.put_back()
    while hands.running() and time.monotonic() < deadline and not worker.hurry:
        await _step_or_pause(worker, deadline)
    for held in hands.running():
        carrier.interrupt(held, Outcome.RELEASED)
    patience = time.monotonic() + (LAST_WORDS / 2 if worker.hurry else LAST_WORDS)
    while hands.running() and time.monotonic() < patience:
        await _step_or_pause(worker, patience)
    for held in hands.running():
        carrier.abandon(held)
    await _hand_in(worker)


async def _step_or_pause(worker: Worker, deadline: float) -> None:
    if worker.returns:
        await worker.step()
    else:
        await worker.ears.pause(min(0.5, max(0.0, deadline - time.monotonic())))


async def _hand_in(worker: Worker) -> None:
    """The last outcomes; what cannot be handed in now is reclaimed by others."""
    deadline, told = time.monotonic() + worker.store.settings.connect_timeout, False
    while worker.returns and time.monotonic() < deadline:
        try:
            await worker.returns.exchange()
        except Exception as error:
            level = logging.DEBUG if told else logging.WARNING  # a try each moment, one line
            log.log(level, "%s; %d outcomes wait", error, len(worker.returns))
            told = True
            await asyncio.sleep(0.1)
