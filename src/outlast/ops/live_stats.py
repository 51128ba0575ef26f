"""Live statistics of the dashboard: depths, losses and held jobs at this moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from ..model.humanize import format_duration, pluralize
from ..model.job import lenient_json
from ..model.lifecycle import State
from ..model.timestamps import age, to_datetime
from ..model.unreadable import read_whole
from .access import ALL_JOBS, Access
from .doctor.findings import Finding
from .operation import Op, Row, Rows, Statement
from .report import names_in

LATE_LEASE_S = 3.0  # seconds; workers reclaim twice a second, so later means never
# A duty is late after this many periods without success, and at least this many seconds.
LATE_PERIODS, MIN_LATE_S = 3, 5.0
MAX_LOSSES = 200
MAX_HELD_JOBS = 5_000


@dataclass(frozen=True, slots=True)
class TenantDepth:
    """The jobs of one tenant in one queue and state, and the age of the oldest."""

    tenant: str
    queue: str
    state: str
    number: int
    oldest: float


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker, as shown in the overview."""

    id: str
    state: str
    running: int
    silent_for: float
    lease: float
    queues: list[str] | None  # None: all queues

    @property
    def alive(self) -> bool:
        return self.silent_for < self.lease

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


@dataclass(frozen=True, slots=True)
class DutyStatus:
    name: str
    every: float
    silent_for: float | None  # None: it never succeeded
    error: str | None


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task in a queue whose circuit breaker is open."""

    queue: str
    task: str
    kind: str  # the type of the error that opened it
    open_for: float  # seconds


@dataclass(slots=True)
class LiveStats:
    """The state of all tenants at one moment. `of` restricts it to a caller's access."""

    at: float = 0.0
    depths: list[TenantDepth] = field(default_factory=list)
    expired: list[TenantDepth] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    workers: list[WorkerStatus] = field(default_factory=list)
    duties: dict[str, DutyStatus] = field(default_factory=dict)
    breakers: list[HeldTask] = field(default_factory=list)

    def of(self, reach: Access) -> LiveStats:
        if reach == ALL_JOBS:
            return self
        seen = [depth for depth in self.depths if reach.allows(depth.tenant, depth.queue)]
        lost = [depth for depth in self.expired if reach.allows(depth.tenant, depth.queue)]
        queues = {depth.queue for depth in seen}
        duties = {name: replace(duty, error=None) for name, duty in self.duties.items()}
        held = [breaker for breaker in self.breakers if breaker.queue in queues]
        return LiveStats(self.at, seen, lost, self.paused & queues, self.workers, duties, held)

    @property
    def alive(self) -> list[WorkerStatus]:
        return [worker for worker in self.workers if worker.alive]

    @property
    def by_state(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for depth in self.depths:
            found[depth.state] += depth.number
        return found

    def by_queue(self, state: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for depth in self.depths:
            if depth.state == state:
                found[depth.queue] += depth.number
        return found


def live_stats() -> Op[LiveStats]:
    rows: Rows = yield Statement("live_stats")
    found = LiveStats()
    for kind, tenant, name, state, number, first, second, detail in rows:
        match kind:
            case "jobs":
                found.depths.append(
                    TenantDepth(tenant, name, state, int(number), max(0.0, age(first or 0.0)))
                )
            case "expired":
                found.expired.append(
                    TenantDepth(tenant, name, State.RUNNING, int(number), age(first))
                )
            case "paused":
                found.paused.add(name)
            case "breaker":
                found.breakers.append(HeldTask(name, state, detail or "", first))
            case "worker":
                running, queues = read_whole(number), names_in(detail)
                found.workers.append(
                    WorkerStatus(name, state, running, age(first), age(second), queues)
                )
            case "duty":
                found.duties[name] = DutyStatus(
                    name, first, None if second < 0 else age(second), detail
                )
            case "clock":
                found.at = float(number)
    return found


def stuck_findings(stats: LiveStats) -> list[Finding]:
    """Pure: jobs and duties that make no progress, and would not without an operator."""
    return [finding for check in (_unserved, _lost, _failing) for finding in check(stats)]


def _unserved(stats: LiveStats) -> Iterator[Finding]:
    for queue, ready in sorted(stats.by_queue(State.READY).items()):
        if queue not in stats.paused and not any(worker.serves(queue) for worker in stats.alive):
            yield Finding(
                "unhandled",
                f"The queue {queue} has {pluralize(ready, 'ready job')} and no live worker.",
                f"Start one: outlast worker APP --queues {queue}",
            )


def _lost(stats: LiveStats) -> Iterator[Finding]:
    late = [depth for depth in stats.expired if depth.oldest > LATE_LEASE_S]
    if late:
        number = sum(depth.number for depth in late)
        longest = max(depth.oldest for depth in late)
        yield Finding(
            "owner-dead",
            f"{pluralize(number, 'running job')} lost the owner up to"
            f" {format_duration(longest)} ago,"
            " and no worker has reclaimed them.",
            "Start a worker: it reclaims them within a second."
            if not stats.alive
            else "See the logs of the workers: each of them should do it within a second.",
        )


def _failing(stats: LiveStats) -> Iterator[Finding]:
    for duty in stats.duties.values():
        if duty.error:
            yield Finding(
                "stalled-net",
                f"The last run of the duty {duty.name} failed: {duty.error}",
                "It is retried automatically; if this persists, fix the cause named by the error.",
            )


@dataclass(frozen=True, slots=True)
class LossEvent:
    """A recorded loss: workers that were lost, or a write that was refused."""

    kind: str
    at: datetime
    data: dict[str, object]


@dataclass(frozen=True, slots=True)
class Recovery:
    """A job whose worker was lost: when the loss was noticed, and when the job ran again."""

    job: str
    task: str
    queue: str
    tenant: str
    state: str
    attempt: int
    worker: str | None
    started_at: datetime | None
    noticed_at: datetime
    again_at: datetime | None

    @property
    def recovered_in(self) -> float | None:
        if self.again_at is None:
            return None
        return max(0.0, (self.again_at - self.noticed_at).total_seconds())


@dataclass(frozen=True, slots=True)
class HeldJob:
    worker: str
    id: str
    task: str
    queue: str
    tenant: str
    attempt: int
    started_at: datetime | None
    lease_until: datetime | None


def losses(kind: str, limit: int = MAX_LOSSES) -> Op[list[LossEvent]]:
    """The latest losses of one kind; each kind has its own limit, so that neither hides the
    other."""
    rows: Rows = yield Statement("losses", {"kind": kind, "limit": limit})
    found = []
    for at, data in rows:
        parsed = lenient_json(data)
        facts = parsed if isinstance(parsed, dict) else {}
        found.append(LossEvent(kind, to_datetime(at), facts))
    return found


def recoveries(
    seconds: float, limit: int = MAX_LOSSES, reach: Access = ALL_JOBS
) -> Op[list[Recovery]]:
    """Jobs reclaimed recently from lost workers."""
    given = {"late": seconds, "limit": limit, **reach.params}
    rows: Rows = yield Statement("crashed_attempts", given)
    return [Recovery(**_named(Recovery, row)) for row in rows]


def jobs_by_worker(
    reach: Access = ALL_JOBS, limit: int = MAX_HELD_JOBS
) -> Op[dict[str, list[HeldJob]]]:
    """Running jobs by their worker."""
    rows: Rows = yield Statement("held_jobs", {"limit": limit, **reach.params})
    found: dict[str, list[HeldJob]] = {}
    for row in rows:
        job = HeldJob(**_named(HeldJob, row))
        found.setdefault(job.worker, []).append(job)
    return found


def _named(kind: type[Any], row: Row) -> dict[str, Any]:
    """A row as keyword arguments of its class; fields named as times become datetimes."""
    names = [one.name for one in fields(kind)]
    return {
        name: to_datetime(value) if name.endswith(("_at", "_until")) else value
        for name, value in zip(names, row, strict=True)
    }
