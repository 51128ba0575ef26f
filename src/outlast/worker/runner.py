"""Job runner: starts jobs, enforces timeouts, stops and abandons handlers.

claim ─▶ in flight ─▶ a slot is free: handler runs ──────▶ ended ─▶ reported
            │              │ timeout, cancel, shutdown       ▲
            │              ├▶ interrupt ─ cancel_grace ─▶ abandon   its thread may still run
            │              └▶ drop: the claim is lost, and nothing is reported
            └▶ no slot is free for long: released, unspent
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
from .failure_attribution import OutageJudge
from .in_flight import InFlight, log_fields
from .outcome_log import log_failure_of
from .outcome_policy import OutcomePolicy
from .shared import WorkerShared

log = logging.getLogger("outlast.worker")

HELD_BACK_END = AttemptEnd(Outcome.RELEASED, quiet=True)
MAX_UNKNOWN_NAMED = 50  # tasks that a claim excludes; with more, it names the known tasks
OVERTIME_S = 1.0  # after a timeout and its grace, until the heartbeat thread acts


class JobRunner:
    """Runs the handlers of claimed jobs. `context` creates the context of a handler, `deliver`
    receives each ended attempt, and `slot_freed` is called when an abandoned thread ends."""

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
        self._unknown: set[str] = set()  # unknown tasks of claimed jobs
        self.prefetched: deque[InFlight] = deque()  # in flight, waiting for a slot
        self._prefetched_since = 0.0
        self.abandoned_threads = 0  # abandoned handlers that still hold a thread
        self._coroutines = CoroutineRunner(in_flight, shared.threads, self._done, self._take_next)
        self.batches = Batches(in_flight, shared.threads, breakers, self.end, slot_freed)

    def unknown_tasks(self) -> set[str]:
        """Tasks to exclude from claims, without those registered since."""
        self._unknown = {task for task in self._unknown if not self._registered(task)}
        return self._unknown

    def known_tasks(self) -> list[str] | None:
        """The tasks to claim by name, if too many are unknown to exclude them; else None."""
        return None if len(self._unknown) <= MAX_UNKNOWN_NAMED else self.registry.names()

    # Start

    def accept(self, claims: Sequence[Claim], until: float) -> None:
        """Register all claims before the first handler runs, which may block, while jobs in flight
        are renewed. Their leases are safe `until` then, by the monotonic clock."""
        if not self.prefetched:
            self._prefetched_since = time.monotonic()
        late = time.monotonic() >= until
        released: set[tuple[str, str]] = set()  # lanes with a released job
        for claim in claims:
            lane = None if claim.lane is None else (claim.queue, claim.lane)
            if lane in released:
                continue  # it must not overtake: the heartbeat thread releases it, too
            if job := self._accept(claim, until, late):
                self.prefetched.append(job)
            elif lane is not None:
                released.add(lane)

    def start(self, free: int) -> None:
        """Start prefetched jobs in free slots."""
        batch: deque[InFlight] = deque()
        try:
            self._begin_jobs(batch, free)
        finally:  # also after an error: the other jobs have been removed from `prefetched`
            if batch:
                self._coroutines.run(batch)

    def _take_next(self, batch: deque[InFlight], free: int) -> None:
        """Begin jobs in slots that were just freed; none once the worker stops."""
        if self.prefetched and not self._state.stopping:
            self._begin_jobs(batch, free, to_the_end=False)

    def _begin_jobs(self, batch: deque[InFlight], free: int, *, to_the_end: bool = True) -> None:
        """Add jobs to the batch whose handlers are to be called. Without a free slot, jobs that
        need none may still follow."""
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
                    continue  # stopped or lost before it began
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
                    job.began_at = now  # about now: other handlers may be called first
                    self._in_flight.take_slot(job)
                    batch.append(job)
                    free -= 1
                else:
                    before, slots = slots, self.batches.slots
                    free -= slots - before
        finally:
            self.prefetched.extend(there)

    def tracked(self) -> set[InFlight]:
        """Jobs in flight that will be started: prefetched, queued, or in a batch."""
        return {*self.prefetched, *self._coroutines.queued(), *self.batches.tracked()}

    def release_unstarted(self, after: float = 0.0) -> None:
        """Release jobs without a slot for so many seconds: other workers may have one."""
        if self.prefetched and time.monotonic() - self._prefetched_since >= after:
            for job in self.prefetched:
                self.interrupt(job, Outcome.RELEASED)
            self.prefetched.clear()

    def _needs_no_slot(self, job: InFlight) -> bool:
        """Whether a job needs no slot: items of a batch share one, and jobs of unknown tasks are
        released."""
        definition = self.registry.get(job.claim.task)
        return definition is None or self.batches.would_join(job.claim)

    def _accept(self, claim: Claim, until: float, late: bool) -> InFlight | None:
        if late:
            self.counts["late"] += 1
            log.warning("job %s: its claim came too late to be started", claim.id,
                        extra=log_fields(claim))  # fmt: skip
            return None
        if older := self._in_flight.get(claim.id):
            self.drop_lost([older])  # this worker lost the job, and has claimed it again
        job = InFlight(claim, safe_until=until)
        return job if self._in_flight.add(job) else None

    def _start(self, job: InFlight) -> bool:
        """Begin an attempt; returns whether to call a handler for this job alone. A faulty row
        affects no other job."""
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
        """Release a job of an unknown task, unspent: other workers may know the task. This worker
        does not claim such jobs again."""
        task = job.claim.task
        if task not in self._unknown:
            log.error("task %r is unknown here: its jobs are left for other workers", task,
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
            self.abandoned_threads -= 1  # its thread is free again
            self._slot_freed()
        elif not job.ended:
            self.end(job, ended)

    def hold_back(self, circuit: Circuit) -> None:
        """Release jobs in open batches after a breaker has opened. (Prefetched jobs are released
        when they would start.)"""
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
        # The execution's claim has arguments that were fetched by reference.
        claim = job.claim if job.execution is None else job.execution.claim
        log_failure_of(claim, ended, transition, self._state.settings)

    # Stop

    def interrupt(self, job: InFlight, reason: Outcome) -> None:
        """Ask a handler to stop; it is abandoned unless it stops within the grace time."""
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
        """End a job without waiting for its handler, which may still hold a thread."""
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
                continue  # its outcome is judged by the fence
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
