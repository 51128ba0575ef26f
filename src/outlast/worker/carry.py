"""Jobs being carried out: started, timed, told to stop, given up.

claim ─▶ in hand ─▶ a slot is free: handler runs ────────▶ ended ─▶ returns
            │              │ timeout, cancel, shutdown       ▲
            │              ├▶ interrupt ─ cancel_grace ─▶ abandon   its thread may still run
            │              └▶ lose: the claim is gone, and nothing of it is handed in
            └▶ none is free for long: put back, unspent
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..model.breaker import Breaker, Circuit
from ..model.job import Claim
from ..model.lifecycle import Outcome, State
from ..model.outcome import Ended, Transition, counter_at_limit, decide, release
from ..model.retry import LONGEST, Retry
from ..model.task import Definition
from ..model.text import brief, describe
from ..ops.renew import Renewed
from .batches import Batches
from .breaker import OutageJudge
from .execute import Execution, begin, stopped
from .held import SAFETY, Held, facts
from .shared_task import SharedTasks

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

HELD_BACK = Ended(Outcome.RELEASED, quiet=True)
NO_MATTER = Retry()  # what has not failed is not tried again
MOST_UNKNOWN = 50  # names that a claim leaves out; beyond, it asks for what is known
OVERTIME = 1.0  # seconds after a timeout and its grace before the keeper acts in the loop's place


class Carrier:
    def __init__(self, worker: Worker, breakers: OutageJudge) -> None:
        self._worker = worker
        self._breakers = breakers
        self._hands = worker.hands
        self._counts = worker.counts
        self._ran = worker.figures.ran
        self._unknown: set[str] = set()  # tasks that we have met and cannot run
        self.ahead: deque[Held] = deque()  # in hand, and not begun: there is no slot for them yet
        self._ahead_since = 0.0
        self.stuck = 0  # abandoned handlers that still hold a thread
        self._tasks = SharedTasks(worker, self._done)
        self.batches = Batches(worker, self.end, breakers)

    def unknown(self) -> set[str]:
        """Tasks not to ask for. One that was registered since is no longer among them."""
        self._unknown = {task for task in self._unknown if not self._registered(task)}
        return self._unknown

    def known(self) -> list[str] | None:
        """The tasks to ask for by name, if more are unknown than should be told each time."""
        return None if len(self._unknown) <= MOST_UNKNOWN else self._worker.app.registry.names()

    # Start

    def take(self, claims: Sequence[Claim], asked_at: float) -> None:
        """Take all of them in hand before the first handler runs: it may block, and who is in hand
        is renewed meanwhile."""
        until = asked_at + self._worker.settings.lease * SAFETY
        if not self.ahead:
            self._ahead_since = time.monotonic()
        late = time.monotonic() >= until
        self.ahead.extend([held for claim in claims if (held := self._take(claim, until, late))])

    def start(self, free: int) -> None:
        """Begin with those in hand for whom there is a slot."""
        line: deque[Held] = deque()
        there, self.ahead = self.ahead, deque()
        now = time.monotonic()
        try:
            while there:
                held = there.popleft()
                if held.ended or not self._hands.holds(held):
                    continue  # told to stop, or lost, before it began
                if self._breakers.open and self._breakers.holds(held.claim):
                    self.end(held, HELD_BACK)
                    continue
                if free <= 0 and not self._needs_no_slot(held):
                    self.ahead.append(held)
                    continue
                before = self.batches.slots
                if self._start(held):
                    held.began_at = now  # soon: others may be called first
                    line.append(held)
                    free -= 1
                free -= self.batches.slots - before
        finally:  # whatever we fail at, the others are not to be missed
            self.ahead.extend(there)
            if line:
                self._tasks.carry_out(line)

    def in_care(self) -> set[Held]:
        """Those in hand that somebody will begin with, apart from what runs."""
        return {*self.ahead, *self._tasks.in_line(), *self.batches.in_care()}

    def waiting(self) -> int:
        """Those ahead that are to begin still."""
        return sum(not held.ended and self._hands.holds(held) for held in self.ahead)

    def put_back(self, after: float = 0.0) -> None:
        """Those that have not begun since so many seconds: others may have a slot for them."""
        if self.ahead and time.monotonic() - self._ahead_since >= after:
            for held in self.ahead:
                self.interrupt(held, Outcome.RELEASED)
            self.ahead.clear()

    def _needs_no_slot(self, held: Held) -> bool:
        """Items of a batch share one; what we cannot run is put back."""
        definition = self._worker.app.registry.get(held.claim.task)
        return definition is None or self.batches.gathers(held.claim)

    def _take(self, claim: Claim, until: float, late: bool) -> Held | None:
        if late:
            self._counts["late"] += 1
            log.warning("job %s: its claim came too late to be started", claim.id,
                        extra=facts(claim))  # fmt: skip
            return None
        if older := self._hands.get(claim.id):
            self.lose([older])  # we lost it, and were the ones to claim it again
        held = Held(claim, safe_until=until)
        return held if self._hands.take(held) else None

    def _start(self, held: Held) -> bool:
        """Begin an attempt, and say whether a handler is to be called for it alone. Whatever is
        wrong with a row concerns that row alone."""
        definition = self._worker.app.registry.get(held.claim.task)
        if definition is None:
            self._put_back_unknown(held)
            return False
        try:
            if held.claim.at_limit:
                self.end(held, counter_at_limit(held.claim))
                return False
            self._begin(held, definition)
            return definition.batch is None
        except Exception as error:
            self.end(held, Ended(Outcome.UNDECODABLE, error=describe(error)))
            return False

    def _begin(self, held: Held, definition: Definition) -> None:
        claim, worker = held.claim, self._worker
        context = worker.context(claim)
        if claim.timeout is not None:
            self._limit(held, claim.timeout)
        if definition.batch is not None:
            self.batches.join(held, definition, context)
        else:
            held.execution = begin(definition, claim, context)

    def _limit(self, held: Held, timeout: float) -> None:
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise ValueError(f"its timeout is no number of seconds but {timeout!r}")
        timeout = min(timeout, LONGEST)
        self._after(held, timeout, partial(self.interrupt, held, Outcome.TIMED_OUT))
        grace = self._worker.settings.cancel_grace
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

    def _done(self, held: Held, ended: Ended) -> None:
        if held.abandoned:
            self.stuck -= 1  # the thread that it held is free at last
            self._worker.news()
        elif not held.ended:
            self.end(held, ended)

    def hold_back(self, circuit: Circuit) -> None:
        """A breaker has opened: what waits for a batch goes back. (What has no slot yet does when
        it would begin.)"""
        for held in self.batches.waiting():
            if (held.claim.queue, held.claim.task) == circuit and self._breakers.holds(held.claim):
                self.batches.leave(held)
                self.end(held, HELD_BACK)

    def end(self, held: Held, ended: Ended) -> None:
        if ended.outcome is not Outcome.SUCCEEDED or self._breakers.open or self._breakers.streaks:
            ended = self._breakers.ended(held.claim, ended, self._breaker(held.claim))
        held.transition = self.decide(held.claim, ended)
        if held.execution is not None and (trace := held.execution.context.run_trace):
            held.transition = held.transition._replace(trace=trace)
        if held.began_at:
            self._ran[held.claim.task].append(time.monotonic() - held.began_at)
        held.drop_timers()
        self._give_back(held)
        if ended.error is not None and not ended.quiet:
            self._log_end(held.claim, ended, held.transition)

    def _give_back(self, held: Held) -> None:
        self._worker.returns.add(held)
        self._worker.news()

    def decide(self, claim: Claim, ended: Ended) -> Transition:
        """What becomes of the job. A row that is too broken to tell goes dead, with the reason."""
        if ended.outcome is Outcome.SUCCEEDED:
            return decide(claim, ended, NO_MATTER, luck=0.0)
        try:
            return decide(claim, ended, self._policy(claim, ended), random.random())
        except Exception as error:
            told = {
                "type": "Undecodable",
                "message": f"its row cannot be read: {brief(error)}",
                "traceback": (ended.error or {}).get("traceback", ""),
            }
            return Transition(claim, Outcome.UNDECODABLE, State.DEAD, error=told, failures=1)

    def _breaker(self, claim: Claim) -> Breaker | None:
        definition = self._worker.app.registry.get(claim.task)
        return definition.breaker if definition else None

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
        if held.ended:
            return
        if execution is None:  # it has not begun
            self.end(held, stopped(why, held.claim))
            return
        if execution.stopped is not None:
            return
        execution.stopped = why
        execution.interrupt(held.task)
        self._after(held, self._worker.settings.cancel_grace, partial(self.abandon, held))

    def abandon(self, held: Held) -> None:
        """Its outcome no longer waits for the handler, which may still hold a thread."""
        if held.ended or held.execution is None:
            return
        log.error("job %s: its handler does not stop; abandoned", held.claim.id,
                  extra=facts(held.claim))  # fmt: skip
        self._counts["abandoned"] += 1
        self._leave_alone(held, held.execution)
        self.end(held, held.execution.interrupted())

    def lose(self, held: Sequence[Held]) -> None:
        """Somebody else may have these: stop them, and keep nothing of what they did."""
        for one in held:
            if one.ended or one.completed:
                continue  # an outcome that is on its way, or there, is judged by the fence
            log.warning("job %s: claim lost, stopping", one.claim.id, extra=facts(one.claim))
            self._counts["lost"] += 1
            self._hands.drop(one)
            if one.execution is not None:
                self._leave_alone(one, one.execution)
                one.execution.stopped = Outcome.RELEASED
                one.execution.interrupt(one.task)

    def _leave_alone(self, held: Held, execution: Execution) -> None:
        """From now on nothing that this handler says or returns counts."""
        execution.context.lose()
        if not held.abandoned and held.task is not None:
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
