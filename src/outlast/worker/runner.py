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
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ..model.breaker import Circuit
from ..model.claim import Claim
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd, Transition, counter_at_limit, release
from ..model.retry import MAX_DELAY_S
from ..model.safe_text import error_record
from ..model.task import Registry, TaskDefinition
from ..ops.renew import Renewed
from .batches import Batches
from .context import Context
from .coroutine_runner import CoroutineRunner
from .executor import Execution, new_execution, stopped_end
from .in_flight import InFlight, log_fields
from .outage_judge import OutageJudge
from .outcome_log import log_failure_of
from .outcome_policy import OutcomePolicy
from .shared import WorkerShared

log = logging.getLogger("outlast.worker")

HELD_BACK_END = AttemptEnd(Outcome.RELEASED, quiet=True)
MAX_UNKNOWN_NAMED = 50  # names that a claim leaves out; beyond, it asks for what is known
OVERTIME_S = 1.0  # after a timeout and its grace, until the heartbeat thread acts


class JobRunner:
    """Runs the handlers of claimed jobs. `context` makes what a handler is given, `deliver` takes
    each ended attempt, and `slot_freed` is called when an abandoned thread ends."""

    def __init__(
        self,
        registry: Registry,
        shared: WorkerShared,
        breakers: OutageJudge,
        *,
        context: Callable[[Claim], Context],
        deliver: Callable[[InFlight], None],
        slot_freed: Callable[[], None],
    ) -> None:
        self.registry = registry
        self._policy = OutcomePolicy(registry)
        self.decide = self._policy.decide
        self.breakers = breakers
        self._state = shared.state
        self._in_flight = in_flight = shared.in_flight
        self._context = context
        self._deliver = deliver
        self._slot_freed = slot_freed
        self.counts = shared.metrics.counts
        self._durations = shared.metrics.durations
        self._unknown: set[str] = set()  # tasks that we have met and cannot run
        self.prefetched: deque[InFlight] = (
            deque()
        )  # in hand, and not begun: there is no slot for them yet
        self._prefetched_since = 0.0
        self.abandoned_threads = 0  # abandoned handlers that still hold a thread
        self._coroutines = CoroutineRunner(in_flight, shared.threads, self._done, self._take_next)
        self.batches = Batches(in_flight, shared.threads, breakers, self.end, slot_freed)

    def unknown_tasks(self) -> set[str]:
        """Tasks not to ask for. One that was registered since is no longer among them."""
        self._unknown = {task for task in self._unknown if not self._registered(task)}
        return self._unknown

    def known_tasks(self) -> list[str] | None:
        """The tasks to ask for by name, if more are unknown than should be told each time."""
        return None if len(self._unknown) <= MAX_UNKNOWN_NAMED else self.registry.names()

    # Start

    def accept(self, claims: Sequence[Claim], until: float) -> None:
        """Register all claims before the first handler runs: it may block, and jobs in flight are
        renewed meanwhile. Their leases are safe `until` then, by the monotonic clock."""
        if not self.prefetched:
            self._prefetched_since = time.monotonic()
        late = time.monotonic() >= until
        released: set[tuple[str, str]] = set()  # lanes that an earlier job was released of
        for claim in claims:
            lane = None if claim.lane is None else (claim.queue, claim.lane)
            if lane in released:
                continue  # it must not overtake: the heartbeat releases it, too
            if job := self._accept(claim, until, late):
                self.prefetched.append(job)
            elif lane is not None:
                released.add(lane)

    def start(self, free: int) -> None:
        """Start jobs in flight for which there is a slot."""
        batch: deque[InFlight] = deque()
        try:
            self._begin_jobs(batch, free)
        finally:  # whatever we fail at, the others are not to be missed
            if batch:
                self._coroutines.run(batch)

    def _take_next(self, batch: deque[InFlight], free: int) -> None:
        """Begin jobs in slots that have just become free; none once the worker stops."""
        if self.prefetched and not self._state.stopping:
            self._begin_jobs(batch, free, to_the_end=False)

    def _begin_jobs(self, batch: deque[InFlight], free: int, *, to_the_end: bool = True) -> None:
        """Add those to the batch whose handlers are to be called. When there is no slot left, some
        that need none may follow."""
        there, self.prefetched = self.prefetched, deque()
        if self._in_flight.suspects and self._in_flight.secludes():
            suspects = self._in_flight.suspects
            self.prefetched.extend(job for job in there if job not in suspects)
            there = deque(job for job in there if job in suspects)
        now, slots = time.monotonic(), self.batches.slots
        try:
            while there:
                job = there.popleft()
                if job.transition is not None or not self._in_flight.holds(job):
                    continue  # told to stop, or lost, before it began
                if self.breakers.open and self.breakers.holds(job.claim):
                    self.end(job, HELD_BACK_END)
                    continue
                if free <= 0 and not to_the_end:
                    self.prefetched.append(job)
                    break
                if free <= 0 and not self._needs_no_slot(job):
                    self.prefetched.append(job)
                    continue
                if self._start(job):
                    job.began_at = now  # soon: others may be called first
                    self._in_flight.take_slot(job)
                    batch.append(job)
                    free -= 1
                else:
                    before, slots = slots, self.batches.slots
                    free -= slots - before
        finally:
            self.prefetched.extend(there)

    def tracked(self) -> set[InFlight]:
        """Those in hand that somebody will begin with, apart from what runs."""
        return {*self.prefetched, *self._coroutines.queued(), *self.batches.tracked()}

    def release_unstarted(self, after: float = 0.0) -> None:
        """Those that have not begun since so many seconds: others may have a slot for them."""
        if self.prefetched and time.monotonic() - self._prefetched_since >= after:
            for job in self.prefetched:
                self.interrupt(job, Outcome.RELEASED)
            self.prefetched.clear()

    def _needs_no_slot(self, job: InFlight) -> bool:
        """Items of a batch share a slot; jobs of unknown tasks are released."""
        definition = self.registry.get(job.claim.task)
        return definition is None or self.batches.would_join(job.claim)

    def _accept(self, claim: Claim, until: float, late: bool) -> InFlight | None:
        if late:
            self.counts["late"] += 1
            log.warning("job %s: its claim came too late to be started", claim.id,
                        extra=log_fields(claim))  # fmt: skip
            return None
        if older := self._in_flight.get(claim.id):
            self.drop_lost([older])  # we lost it, and were the ones to claim it again
        job = InFlight(claim, safe_until=until)
        return job if self._in_flight.add(job) else None

    def _start(self, job: InFlight) -> bool:
        """Begin an attempt, and say whether a handler is to be called for it alone. Whatever is
        wrong with a row concerns that row alone."""
        definition = self.registry.get(job.claim.task)
        if definition is None:
            self._release_unknown(job)
            return False
        try:
            if job.claim.at_limit:
                self.end(job, counter_at_limit(job.claim))
                return False
            self._begin(job, definition)
            return definition.batch is None
        except Exception as error:
            self.end(job, AttemptEnd(Outcome.UNDECODABLE, error=error_record(error)))
            return False

    def _begin(self, job: InFlight, definition: TaskDefinition) -> None:
        claim = job.claim
        context = self._context(claim)
        if claim.timeout is not None:
            self._set_timeouts(job, claim.timeout)
        if definition.batch is not None:
            self.batches.join(job, definition, context)
        else:
            job.execution = new_execution(definition, claim, context)

    def _set_timeouts(self, job: InFlight, timeout: float) -> None:
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        timeout = min(timeout, MAX_DELAY_S)
        self._after(job, timeout, partial(self.interrupt, job, Outcome.TIMED_OUT))
        job.overdue_at = time.monotonic() + timeout + self._state.settings.cancel_grace + OVERTIME_S

    def _release_unknown(self, job: InFlight) -> None:
        """Released unspent: other workers may know the task. This worker does not claim such jobs
        again."""
        task = job.claim.task
        if task not in self._unknown:
            log.error("the task %r is unknown to this worker: its jobs are left for others", task,
                      extra=log_fields(job.claim))  # fmt: skip
        self._unknown.add(task)
        self.counts["unhandled"] += 1
        job.transition = release(job.claim)
        self._deliver(job)

    def _registered(self, task: str) -> bool:
        return self.registry.get(task) is not None

    # End

    def _done(self, job: InFlight, ended: AttemptEnd) -> None:
        if job.abandoned:
            self.abandoned_threads -= 1  # the thread that it held is free at last
            self._slot_freed()
        elif not job.ended:
            self.end(job, ended)

    def hold_back(self, circuit: Circuit) -> None:
        """A breaker has opened: what waits for a batch goes back. (What has no slot yet does when
        it would begin.)"""
        for job in self.batches.waiting():
            if (job.claim.queue, job.claim.task) == circuit and self.breakers.holds(job.claim):
                self.batches.remove(job)
                self.end(job, HELD_BACK_END)

    def end(self, job: InFlight, ended: AttemptEnd) -> None:
        if ended.outcome is not Outcome.SUCCEEDED or self.breakers.open or self.breakers.streaks:
            breaker = self._policy.breaker(job.claim)
            ended = self.breakers.judge_end(job.claim, ended, breaker)
        job.transition = self.decide(job.claim, ended)
        if job.execution is not None and (trace := job.execution.context.run_trace):
            job.transition = job.transition._replace(trace=trace)
        if job.began_at:
            self._durations[job.claim.task].append(time.monotonic() - job.began_at)
        if job.timers:
            job.drop_timers()
        self._deliver(job)
        if ended.error is not None and not ended.quiet:
            self._log_end(job, ended, job.transition)

    def _log_end(self, job: InFlight, ended: AttemptEnd, transition: Transition) -> None:
        # Arguments that are stored by reference are there once they have been fetched.
        claim = job.claim if job.execution is None else job.execution.claim
        log_failure_of(claim, ended, transition, self._state.settings)

    # Stop

    def interrupt(self, job: InFlight, reason: Outcome) -> None:
        """Ask a handler to stop; one that does not within the grace time is abandoned."""
        execution = job.execution
        if job.ended:
            return
        if execution is None:  # it has not begun
            self.end(job, stopped_end(reason, job.claim))
            return
        if execution.stopped is not None:
            return
        execution.stopped = reason
        execution.interrupt(job.task)
        self._after(job, self._state.settings.cancel_grace, partial(self.abandon, job))

    def abandon(self, job: InFlight) -> None:
        """Its outcome no longer waits for the handler, which may still hold a thread."""
        if job.ended or job.execution is None:
            return
        log.error("job %s: its handler does not stop; abandoned", job.claim.id,
                  extra=log_fields(job.claim))  # fmt: skip
        self.counts["abandoned"] += 1
        self._disown(job, job.execution)
        self.end(job, job.execution.interrupted())

    def drop_lost(self, job: Sequence[InFlight]) -> None:
        """Another worker may own these jobs: stop them and discard their outcomes."""
        for one in job:
            if one.ended or one.completed:
                continue  # an outcome that is on its way, or there, is judged by the fence
            log.warning("job %s: claim lost, stopping", one.claim.id, extra=log_fields(one.claim))
            self.counts["lost"] += 1
            self._in_flight.discard(one)
            if one.execution is not None:
                self._disown(one, one.execution)
                one.execution.stopped = Outcome.RELEASED
                one.execution.interrupt(one.task)

    def _disown(self, job: InFlight, execution: Execution) -> None:
        """Ignore all later events and results of this handler."""
        execution.context.disown()
        if not job.abandoned and job.task is not None:
            job.abandoned = True
            self.abandoned_threads += 1

    def _after(self, job: InFlight, seconds: float, action: Callable[[], None]) -> None:
        job.timers += (asyncio.get_running_loop().call_later(seconds, action),)

    # From the heartbeat thread

    def renewed(self, renewed: Renewed, fences: dict[str, int]) -> None:
        for id in renewed.lost | renewed.cancelling:
            job = self._in_flight.get(id, fences[id])
            if job is not None and id in renewed.lost:
                self.drop_lost([job])
            elif job is not None:
                self.interrupt(job, Outcome.CANCELLED)
