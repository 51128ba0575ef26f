"""What is wrong here? Facts from the database, and one pure function per ailment.

A finding carries a name from the catalogue of orphans where there is one, a sentence that says
what was seen, and what to do. A new check is a function from `Facts` to findings in `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...model.humanize import format_duration, pluralize
from ...model.lifecycle import State
from ...model.orphans import DANGLING, ORPHANS
from .. import report
from ..limits import LimitsInForce, limits
from ..operation import Op, Row, Statement
from ..report import Duty, Queue, WorkerInfo
from . import database, orphans
from .database import DatabaseFacts, HostFacts
from .findings import Finding
from .orphans import FoundOrphans

LATE_PERIODS = 3  # a duty that has not succeeded for so many of its periods is late
MIN_LATE_S = (
    5.0  # seconds; or for this long, where a period is shorter than a busy machine's hiccup
)


@dataclass(frozen=True, slots=True)
class SystemFacts:
    database: DatabaseFacts
    now: float
    version: int
    queues: list[Queue]
    workers: list[WorkerInfo]
    owners: dict[str, int]
    duties: list[Duty]
    unhandled: list[tuple[str, str, int]]
    orphans: FoundOrphans
    dangling: dict[str, int]
    troubled: list[Row] = field(default_factory=list)  # workers, by id, pid, host and why
    limits: list[LimitsInForce] = field(default_factory=list)

    @property
    def alive(self) -> list[WorkerInfo]:
        return [worker for worker in self.workers if worker.alive]


def examine(host: HostFacts) -> Op[list[Finding]]:
    return findings((yield from facts(host)))


def facts(host: HostFacts) -> Op[SystemFacts]:
    version, _ = yield from report.schema_version()
    now = yield from report.clock()
    queues = yield from report.queues()
    workers = yield from report.worker_rows()
    duties = yield from report.duties()
    unhandled = yield from report.unhandled()
    owners = yield Statement("owners")
    orphaned = yield from orphans.find_orphans(host.confirm_locked)
    dangling = yield from orphans.find_dangling()
    troubled = yield Statement("troubled_workers")
    in_force = yield from limits()
    db_facts = yield from database.database_facts(host)
    return SystemFacts(
        db_facts,
        now,
        version,
        queues,
        workers,
        dict(owners),
        duties,
        unhandled,
        orphaned,
        dangling,
        troubled,
        in_force,
    )


def findings(facts: SystemFacts) -> list[Finding]:
    """Everything that was found, problems first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    found += orphans.orphan_findings(facts.orphans, bool(facts.alive))
    found += orphans.dangling_findings(facts.dangling)
    found += database.database_findings(facts.database)
    return sorted(found, key=lambda finding: not finding.problem)


def unserved_queues(facts: SystemFacts) -> Iterator[Finding]:
    for queue in facts.queues:
        ready = queue.counts.get(State.READY, 0)
        if ready and not any(worker.serves(queue.name) for worker in facts.alive):
            yield Finding(
                "unhandled",
                f"The queue {queue.name!r} has {pluralize(ready, 'ready job')} and no live worker.",
                f"Start one: outlast worker APP --queues {queue.name}",
            )


def full_queues(facts: SystemFacts) -> Iterator[Finding]:
    most = {one.queue: one.limits.most_waiting for one in facts.limits}
    for queue in facts.queues:
        ready, limit = queue.counts.get(State.READY, 0), most.get(queue.name)
        if limit is not None and ready >= limit:
            yield Finding(
                "queue-full",
                f"The queue {queue.name!r} has {pluralize(ready, 'ready job')},"
                f" and may have {limit}.",
                "Add workers, or raise most_waiting with ol.limit(…).",
            )


def unknown_tasks(facts: SystemFacts) -> Iterator[Finding]:
    for queue, task, number in facts.unhandled:
        if any(worker.serves(queue) for worker in facts.alive):
            yield Finding(
                "unhandled",
                f"No live worker that serves {queue!r} knows the task {task!r};"
                f" {pluralize(number, 'job')} of it wait{'s' * (number == 1)}.",
                "Deploy the code that defines it, or cancel the jobs. They are kept, unspent.",
            )


def stalled_duties(facts: SystemFacts) -> Iterator[Finding]:
    """Late: alive workers, and nobody has done it well for too long. Failing: its last pass healed
    nothing and failed at something, or broke off. A class that the audit counts is late with it."""
    since = min((worker.started_at.timestamp() for worker in facts.alive), default=0.0)
    for duty in facts.duties:
        if duty.error:
            yield Finding(
                "stalled-net",
                f"The duty {duty.name!r} failed when it was last done: {duty.error}",
                "It is tried again by itself; if this stays, the error says what to mend.",
            )
        elif facts.alive and duty.name not in ORPHANS | DANGLING:
            done = (duty.succeeded_at or duty.next_at).timestamp()
            if facts.now - max(done, since) > max(MIN_LATE_S, LATE_PERIODS * duty.every):
                yield Finding(
                    "stalled-net",
                    f"The duty {duty.name!r} was last done {format_duration(facts.now - done)}"
                    " ago, and should"
                    f" be done every {format_duration(duty.every)}: no live worker does it.",
                    "Restart the workers one by one, and keep their logs.",
                )


def audit_found(facts: SystemFacts) -> Iterator[Finding]:
    """What should never have been there to be found."""
    for duty in facts.duties:
        known = ORPHANS.get(duty.name)
        if known is not None and duty.found:
            yield Finding(
                duty.name,
                f"The audit has found {duty.found} of these so far: {duty.healed} healed,"
                f" {duty.skipped} left alone, {duty.failed} failed.",
                f"{known.arises} {known.by} That it was found by the audit means that something"
                " else has failed before: the logs of the workers tell when.",
                problem=False,
            )


def silent_workers(facts: SystemFacts) -> Iterator[Finding]:
    for worker in facts.workers:
        if worker.alive:
            continue
        held = facts.owners.get(worker.id, 0)
        yield Finding(
            "silent-worker",
            f"Worker {worker.id} (pid {worker.pid} on {worker.host}) has been silent for"
            f" {format_duration(worker.silent_for)}, with {pluralize(held, 'job')} in hand.",
            "If the process still runs, see what keeps it from the database; if it died, its jobs"
            " are taken back by others, and this line goes away by itself.",
            problem=held > 0,
        )


def stuck_workers(facts: SystemFacts) -> Iterator[Finding]:
    """Workers that run jobs and cannot say how they ended."""
    for id, pid, host, trouble in facts.troubled:
        yield Finding(
            "cannot-hand-in",
            f"Worker {id} (pid {pid} on {host}) cannot hand in: {trouble}",
            "It keeps these jobs and tries again by itself. If this stays, fix what the error says;"
            " a restart of the worker runs these jobs again.",
        )


def paused_queues(facts: SystemFacts) -> Iterator[Finding]:
    for queue in facts.queues:
        ready = queue.counts.get(State.READY, 0)
        if queue.paused and ready:
            yield Finding(
                "paused",
                f"The queue {queue.name!r} is paused, with {pluralize(ready, 'ready job')}.",
                f"outlast resume {queue.name}",
                problem=False,
            )


def open_breakers(facts: SystemFacts) -> Iterator[Finding]:
    for breaker in [one for queue in facts.queues for one in queue.breakers]:
        yield Finding(
            "breaker-open",
            f"The circuit breaker of the task {breaker.task!r} in the queue {breaker.queue!r} has"
            f" been open for {format_duration(breaker.open_for)}: {breaker.reason};"
            f" {breaker.probe_in_words}.",
            "Bring back what the task depends on; the breaker closes by itself when a probe"
            f" succeeds. To try all jobs at once: outlast close-breaker {breaker.queue}"
            f" {breaker.task}",
        )


def dead_jobs(facts: SystemFacts) -> Iterator[Finding]:
    dead = sum(queue.counts.get(State.DEAD, 0) for queue in facts.queues)
    if dead:
        yield Finding(
            "dead",
            f"{pluralize(dead, 'job')} gave up and wait{'s' * (dead == 1)} for someone to act.",
            "outlast dead shows them with their reasons, outlast retry gives them a new life.",
            problem=False,
        )


def schema_ahead(facts: SystemFacts) -> Iterator[Finding]:
    if facts.version > facts.database.host.known_version:
        yield Finding(
            "newer-schema",
            f"The tables are at version {facts.version}, this release knows"
            f" {facts.database.host.known_version} and can work with them.",
            "Upgrade outlast here when the deploy is through.",
            problem=False,
        )


CHECKS: tuple[Callable[[SystemFacts], Iterator[Finding]], ...] = (
    unserved_queues,
    full_queues,
    unknown_tasks,
    stalled_duties,
    audit_found,
    silent_workers,
    stuck_workers,
    paused_queues,
    open_breakers,
    dead_jobs,
    schema_ahead,
)
