"""Jobs being carried out: started, timed, told to stop, given up.

claim ─▶ start ─▶ handler runs ─────────────────────────▶ ended ─▶ returns
                   │ timeout, cancel, shutdown             ▲
                   ├▶ interrupt ── cancel_grace ─▶ abandon ┘   its thread may still run
                   └▶ lose: the claim is gone, and nothing of it is handed in

A handler that waits for nothing ends where it is started (from Python 3.12 on).
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..model.job import Claim
from ..model.lifecycle import Outcome, State
from ..model.outcome import Ended, Transition, decide, release
from ..model.retry import LONGEST, Retry
from ..model.task import Definition
from ..model.text import brief, describe
from ..ops.renew import Renewed
from .batches import Batches
from .context import Context
from .execute import Execution, begin
from .held import SAFETY, Held, facts

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}

NO_MATTER = Retry()  # what has not failed is not tried again
OVERTIME = 1.0  # seconds after a timeout and its grace before the keeper acts in the loop's place


class Carrier:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._settings = worker.settings
        self._hands = worker.hands
        self._counts = worker.counts
        self._unknown: set[str] = set()  # tasks that we have met and cannot run
        self.stuck = 0  # abandoned handlers that still hold a thread
        self.batches = Batches(worker, self._end)

    def unknown(self) -> set[str]:
        """Tasks not to ask for. One that was registered since is no longer among them."""
        self._unknown = {task for task in self._unknown if not self._registered(task)}
        return self._unknown

    # Start

    def start(self, claims: Sequence[Claim], asked_at: float) -> None:
        """Take all of them in hand before the first handler runs: it may block, and who is in hand
        is renewed meanwhile."""
        until = asked_at + self._settings.lease * SAFETY
        taken = [held for claim in claims if (held := self._take(claim, until))]
        for held in taken:
            if self._hands.holds(held):
                self._start(held)

    def _take(self, claim: Claim, until: float) -> Held | None:
        if time.monotonic() >= until:
            self._counts["late"] += 1
            log.warning("job %s: its claim came too late to be started", claim.id,
                        extra=facts(claim))  # fmt: skip
            return None
        if older := self._hands.get(claim.id):
            self.lose([older])  # we lost it, and were the ones to claim it again
        held = Held(claim, safe_until=until)
        return held if self._hands.take(held) else None

    def _start(self, held: Held) -> None:
        """Begin an attempt. Whatever is wrong with a row concerns that row alone."""
        definition = self._worker.app.registry.get(held.claim.task)
        if definition is None:
            self._put_back_unknown(held)
            return
        try:
            self._begin(held, definition)
        except Exception as error:
            self._end(held, Ended(Outcome.UNDECODABLE, error=describe(error)))

    def _begin(self, held: Held, definition: Definition) -> None:
        claim, worker = held.claim, self._worker
        context = Context(claim, worker.say, worker.app.store, worker.returns.said_by)
        if claim.timeout is not None:
            self._limit(held, claim.timeout)
        if definition.batch is not None:
            self.batches.join(held, definition, context)
            return
        held.execution = begin(definition, claim, context)
        loop = asyncio.get_running_loop()
        held.task = asyncio.Task(held.execution.run(worker.threads), loop=loop, **EAGER)
        if held.task.done():  # it waited for nothing
            self._done(held, held.task)
        else:
            held.task.add_done_callback(partial(self._done, held))

    def _limit(self, held: Held, timeout: float) -> None:
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise ValueError(f"its timeout is no number of seconds but {timeout!r}")
        timeout = min(timeout, LONGEST)
        self._after(held, timeout, partial(self.interrupt, held, Outcome.TIMED_OUT))
        grace = self._settings.cancel_grace
        held.overdue_at = time.monotonic() + timeout + grace + OVERTIME

    def _put_back_unknown(self, held: Held) -> None:
        """Never destroyed, never spent: others may know it. We do not ask for such jobs again."""
        task = held.claim.task
        if task not in self._unknown:
            log.error("the task %r is unknown to this worker: its jobs are left for others", task,
                      extra=facts(held.claim))  # fmt: skip
        self._unknown.add(task)
        self._counts["unhandled"] += 1
        held.transition = release(held.claim)
        self._give_back(held)

    def _registered(self, task: str) -> bool:
        return self._worker.app.registry.get(task) is not None

    # End

    def _done(self, held: Held, task: asyncio.Task[Ended]) -> None:
        assert held.execution is not None
        try:
            ended = task.result()
        except BaseException as error:  # told to stop before it began
            ended = held.execution.raised(error)
        if held.abandoned:
            self.stuck -= 1  # the thread that it held is free at last
            self._worker.news()
        else:
            self._end(held, ended)

    def _end(self, held: Held, ended: Ended) -> None:
        held.transition = self.decide(held.claim, ended)
        held.drop_timers()
        self._give_back(held)
        if ended.error is not None:
            self._log_end(held.claim, ended, held.transition)

    def _give_back(self, held: Held) -> None:
        self._worker.returns.add(held)
        self._worker.news()

    def decide(self, claim: Claim, ended: Ended) -> Transition:
        """What becomes of the job. A row that is too broken to tell goes dead, with the reason."""
        try:
            return decide(claim, ended, self._policy(claim, ended), random.random())
        except Exception as error:
            told = {
                "type": "Undecodable",
                "message": f"its row cannot be read: {brief(error)}",
                "traceback": (ended.error or {}).get("traceback", ""),
            }
            return Transition(claim, Outcome.UNDECODABLE, State.DEAD, error=told, failures=1)

    def _policy(self, claim: Claim, ended: Ended) -> Retry:
        if ended.outcome not in (Outcome.FAILED, Outcome.TIMED_OUT):
            return NO_MATTER
        if claim.retry:
            return Retry.from_json(claim.retry)
        definition = self._worker.app.registry.get(claim.task)
        return definition.retry if definition else Retry()

    def _log_end(self, claim: Claim, ended: Ended, transition: Transition) -> None:
        """What a handler's error says may quote its arguments: that stays with the job."""
        error = ended.error or {}
        level = logging.ERROR if transition.to is State.DEAD else logging.WARNING
        log.log(
            level, "job %s (%s) attempt %d %s, now %s: %s", claim.id, claim.task,
            claim.attempt, ended.outcome, transition.to, error.get("type"), extra=facts(claim),
        )  # fmt: skip
        log.debug("job %s: %s", claim.id, error.get("message"), extra=facts(claim))

    # Stop

    def interrupt(self, held: Held, why: Outcome) -> None:
        """Ask a handler to stop; one that does not within the grace time is abandoned."""
        execution = held.execution
        if execution is None or held.ended or execution.stopped is not None:
            return
        execution.stopped = why
        execution.interrupt(held.task)
        self._after(held, self._settings.cancel_grace, partial(self.abandon, held))

    def abandon(self, held: Held) -> None:
        """Its outcome no longer waits for the handler, which may still hold a thread."""
        if held.ended or held.execution is None or (held.task and held.task.done()):
            return
        log.error("job %s: its handler does not stop; abandoned", held.claim.id,
                  extra=facts(held.claim))  # fmt: skip
        self._counts["abandoned"] += 1
        self._leave_alone(held, held.execution)
        self._end(held, held.execution.interrupted())

    def lose(self, held: Sequence[Held]) -> None:
        """Somebody else may have these: stop them, and keep nothing of what they did."""
        for one in held:
            if one.ended or one.execution is None or one.completed:
                continue  # an outcome that is on its way, or there, is judged by the fence
            log.warning("job %s: claim lost, stopping", one.claim.id, extra=facts(one.claim))
            self._counts["lost"] += 1
            self._hands.drop(one)
            self._leave_alone(one, one.execution)
            one.execution.stopped = Outcome.RELEASED
            one.execution.interrupt(one.task)

    def _leave_alone(self, held: Held, execution: Execution) -> None:
        """From now on nothing that this handler says or returns counts."""
        execution.context.lose()
        if not held.abandoned and held.task is not None and not held.task.done():
            held.abandoned = True
            self.stuck += 1

    def _after(self, held: Held, seconds: float, action: Callable[[], None]) -> None:
        held.timers += (asyncio.get_running_loop().call_later(seconds, action),)

    # What the keeper found out

    def renewed(self, renewed: Renewed, fences: dict[str, int]) -> None:
        for id in renewed.lost | renewed.cancelling:
            held = self._hands.get(id, fences[id])
            if held is not None and id in renewed.lost:
                self.lose([held])
            elif held is not None:
                self.interrupt(held, Outcome.CANCELLED)

    def lose_unsafe(self) -> None:
        """We could not renew in time: let go before others may take over."""
        self.lose(self._hands.unsafe())
