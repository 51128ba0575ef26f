"""Jobs in hand that are in nobody's care: there are none, unless the worker itself has failed.

    in hand ─┬─ ahead: it waits for a slot
             ├─ in a line, or in a task that carries it out
             ├─ in a batch that is gathered or called
             └─ ended, and on its way back

A job that is in none of these places would be renewed for ever and never end: an error of ours
between two of them must not cost more than an attempt.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..model.lifecycle import Outcome
from ..model.outcome import Ended
from ..model.text import describe
from .held import Held, facts

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

LOOK_EVERY = 1.0  # seconds


class Strays:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._look_at = 0.0
        self._suspects: set[Held] = set()

    def due(self) -> bool:
        return time.monotonic() >= self._look_at

    def look(self) -> None:
        """One pass, between two turns of the worker, when nothing is on its way to the database.
        Who is in nobody's care now and was not at the last look is taken care of here."""
        self._look_at = time.monotonic() + LOOK_EVERY
        self._worker.carrier.batches.tidy()
        self._worker.hands.recount()
        loose = self._loose()
        for held in loose & self._suspects:
            self._take_care(held)
        self._suspects = loose

    def _loose(self) -> set[Held]:
        hands = self._worker.hands
        running = [held for held in hands.running() if held.task is None or held.task.done()]
        loose = set(running) - self._worker.carrier.in_care() if running else set()
        return loose | (set(hands.ended()) - self._worker.returns.waiting())

    def _take_care(self, held: Held) -> None:
        self._worker.counts["strays"] += 1
        log.error("job %s: the worker itself failed while it had it in hand", held.claim.id,
                  extra=facts(held.claim))  # fmt: skip
        try:
            if held.ended:
                self._worker.returns.add(held)
                self._worker.news()
            else:
                self._worker.carrier.end(held, self._failure(held))
        except Exception:
            log.exception("job %s: let go, for others to take over", held.claim.id)
            self._worker.hands.drop(held)

    def _failure(self, held: Held) -> Ended:
        """Like any other: one that makes us fail each time is not to be tried for ever."""
        error = OutlastError("the worker itself failed at this job; its log says how")
        if held.execution is None:
            return Ended(Outcome.FAILED, error=describe(error))
        try:
            return held.execution.raised(error)
        except Exception:
            log.exception("job %s: how it ended cannot be told", held.claim.id)
            return Ended(Outcome.FAILED, error=describe(error))
        finally:
            held.execution.context.lose()  # a thread may still be at it
