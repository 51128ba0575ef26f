"""Jobs in flight: from the claim until the database has accepted their outcome."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.claim import Claim, ClaimKey
from ..model.outcome import AttemptEnd, Transition

if TYPE_CHECKING:
    from .executor import Execution

SECLUDED_S = 1.0  # seconds for which a suspect runs alone
LEASE_SAFETY = 0.9  # share of a lease after which an unrenewed job is dropped


@dataclass(slots=True, eq=False)
class InFlight:
    """One job in flight. By the monotonic clock, `safe_until` is when its lease may expire, and
    `overdue_at` when even a handler that ignores its timeout should have been abandoned."""

    claim: Claim
    safe_until: float
    execution: Execution | None = None  # None: not started, or not to be run
    task: asyncio.Task[AttemptEnd] | None = None  # runs its handler
    transition: Transition | None = None  # set once it has ended
    abandoned: bool = False  # its handler is no longer awaited
    has_slot: bool = False  # while its handler runs; items of a batch share the batch's slot
    overdue_at: float = math.inf
    began_at: float = 0.0  # when its handler was called
    timers: tuple[asyncio.TimerHandle, ...] = ()

    @property
    def ended(self) -> bool:
        return self.transition is not None

    @property
    def completed(self) -> bool:
        """Whether its handler, which may still run, has completed the job itself."""
        return self.execution is not None and self.execution.context.completed

    def drop_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers = ()


class InFlightJobs:
    """All jobs in flight. Added and removed only by the worker's loop; the heartbeat thread reads
    them and extends their safety, because a handler may block the loop."""

    def __init__(self) -> None:
        self._jobs: dict[str, InFlight] = {}
        self.slots = 0  # in use
        # Jobs with one crash left, with the time when they were added.
        self.suspects: dict[InFlight, float] = {}
        self._disowned: set[ClaimKey] = set()

    def add(self, job: InFlight) -> bool:
        """Returns False if the claim arrived too late and was released."""
        if (older := self._jobs.get(job.claim.id)) is not None:
            self.discard(older)
        self._jobs[job.claim.id] = job
        if job.claim.crashes and job.claim.one_crash_left:
            self.suspects[job] = time.monotonic()
        if not self._disowned or job.claim.claim_key not in self._disowned:
            return True
        self.discard(job)
        return False

    def disown(self, claim: Claim) -> bool:
        """From the heartbeat thread: refuse a claim that has not arrived. Returns False if it has.

        Each side first records its decision and then checks the other's, so that never both
        proceed.
        """
        if len(self._disowned) > 10_000:
            self._disowned.clear()
        self._disowned.add(claim.claim_key)
        if not self.has(claim):
            return True
        self._disowned.discard(claim.claim_key)
        return False

    def has(self, claim: Claim) -> bool:
        """From any thread: whether this claim is in flight."""
        return self.get(claim.id, claim.fence) is not None

    def discard(self, job: InFlight) -> None:
        if job.timers:
            job.drop_timers()
        if self._jobs.get(job.claim.id) is job:
            del self._jobs[job.claim.id]
        if job.has_slot:
            self.free_slot(job)
        if self.suspects:
            self.suspects.pop(job, None)

    def take_slot(self, job: InFlight) -> None:
        """Occupy a slot: the handler starts, or the outcome cannot be stored for now."""
        if not job.has_slot and self._jobs.get(job.claim.id) is job:
            job.has_slot = True
            self.slots += 1

    def free_slot(self, job: InFlight) -> None:
        """Free the slot of a handler that has ended."""
        if job.has_slot:
            job.has_slot = False
            self.slots -= 1

    def recount(self) -> None:
        """Count the slots again, after an internal error between a job and its slot."""
        self.slots = sum(job.has_slot for job in self._all())

    def remove(self, claim: Claim) -> None:
        """The database has accepted the outcome of this claim."""
        job = self._jobs.get(claim.id)
        if job is not None and job.claim.fence == claim.fence:
            self.discard(job)

    def holds(self, job: InFlight) -> bool:
        return self._jobs.get(job.claim.id) is job

    def get(self, id: str, fence: int | None = None) -> InFlight | None:
        job = self._jobs.get(id)
        return job if job and fence in (None, job.claim.fence) else None

    def fences(self) -> dict[str, int]:
        """A snapshot, safe to take from another thread."""
        return {job.claim.id: job.claim.fence for job in self._all()}

    def renewed(self, renewed_ids: Iterable[str], fences: Mapping[str, int], until: float) -> None:
        """From the heartbeat thread: these leases were renewed."""
        for id in renewed_ids:
            if job := self.get(id, fences[id]):
                job.safe_until = until

    def extend_while_locked(self, fences: Mapping[str, int], until: float) -> None:
        """From the heartbeat thread: another client's lock prevents all writes, so these leases are
        safe until that time."""
        now = time.monotonic()
        for id, fence in fences.items():
            job = self.get(id, fence)
            if job and job.safe_until > now:
                job.safe_until = max(job.safe_until, until)

    def running(self) -> list[InFlight]:
        return [job for job in self._all() if not job.ended]

    def ended(self) -> list[InFlight]:
        return [job for job in self._all() if job.ended]

    def unsafe(self) -> list[InFlight]:
        """Jobs whose lease may expire unrenewed."""
        now = time.monotonic()
        return [job for job in self.running() if job.safe_until <= now]

    def overdue(self) -> list[InFlight]:
        """Jobs past their timeout whose handlers could not be stopped."""
        now = time.monotonic()
        return [job for job in self.running() if job.overdue_at <= now]

    def safe_until(self) -> float:
        """When the first job becomes unsafe."""
        return min((job.safe_until for job in self.running()), default=math.inf)

    def oldest(self) -> InFlight | None:
        """The job that has been in flight for the longest time."""
        return next(iter(self._jobs.values()), None)

    def secludes(self) -> bool:
        """Whether a suspect was added within SECLUDED_S: until its outcome is stored, no other job
        begins beside it, because a crash would be charged to both. A long suspect shares later."""
        now = time.monotonic()
        return any(now - at < SECLUDED_S for at in self.suspects.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def _all(self) -> tuple[InFlight, ...]:
        return tuple(self._jobs.values())


def log_fields(claim: Claim) -> dict[str, object]:
    """The fields of every log line about a job."""
    return {
        "job": claim.id,
        "task": claim.task,
        "queue": claim.queue,
        "attempt": claim.attempt,
        "fence": claim.fence,
        "tenant": claim.tenant,
        "trace": claim.trace,
    }
