"""Doctor: facts from the database, and one pure function per kind of problem.

A finding has a name (from the catalogue of orphans, if there is one), a sentence with the facts,
and advice. A new check is a function from `SystemFacts` to findings in `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...model.humanize import format_duration, pluralize
from ...model.lifecycle import State
from ...model.orphans import DANGLING, ORPHANS
from .. import report
from ..archive import ArchiveState, archive_state
from ..bridges import SOURCE, BridgeState, bridges
from ..limits import LimitsInForce, limits
from ..operation import Op, Row, Statement
from ..report import Duty, Queue, WorkerInfo
from . import database, orphans
from .database import DatabaseFacts, HostFacts
from .findings import Finding
from .orphans import FoundOrphans
from .waits import AwaitedSignals, awaited_signals, unanswerable_waits

LATE_PERIODS = 3  # periods without success after which a duty is late
SILENT_SOURCE_S = 120.0  # sources report every few seconds; failing ones at each attempt
MIN_LATE_S = 5.0  # seconds; the minimum, for periods shorter than a hiccup of a busy machine


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
    troubled: list[Row] = field(default_factory=list)  # workers: id, pid, host and reason
    limits: list[LimitsInForce] = field(default_factory=list)
    bridges: list[BridgeState] = field(default_factory=list)
    archive: ArchiveState = ArchiveState()
    waits: list[AwaitedSignals] = field(default_factory=list)

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
    bridged = yield from bridges()
    archived = yield from archive_state()
    waits = yield from awaited_signals()
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
        bridged,
        archived,
        waits,
    )


def findings(facts: SystemFacts) -> list[Finding]:
    """Every finding, problems first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    found += unanswerable_waits(facts.waits, facts.alive)
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
                f" and its limit is {limit}.",
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
    """Duties that are late or fail. Late: workers are alive, and no pass has succeeded for too
    long. Failing: the last pass healed nothing and failed at something, or was interrupted. A class
    that the audit counts is late together with the audit."""
    since = min((worker.started_at.timestamp() for worker in facts.alive), default=0.0)
    for duty in facts.duties:
        if duty.error:
            yield Finding(
                "stalled-net",
                f"The last run of the duty {duty.name!r} failed: {duty.error}",
                "It is retried automatically; if this persists, fix the cause named by the error.",
            )
        elif facts.alive and duty.name not in ORPHANS | DANGLING:
            done = (duty.succeeded_at or duty.next_at).timestamp()
            if facts.now - max(done, since) > max(MIN_LATE_S, LATE_PERIODS * duty.every):
                yield Finding(
                    "stalled-net",
                    f"The duty {duty.name!r} last ran {format_duration(facts.now - done)} ago and"
                    f" should run every {format_duration(duty.every)}: no live worker runs it.",
                    "Restart the workers one by one, and keep their logs.",
                )


def audit_found(facts: SystemFacts) -> Iterator[Finding]:
    """Orphans that should never have existed."""
    for duty in facts.duties:
        known = ORPHANS.get(duty.name)
        if known is not None and duty.found:
            yield Finding(
                duty.name,
                f"The audit has found {duty.found} of these so far: {duty.healed} healed,"
                f" {duty.skipped} left alone, {duty.failed} failed.",
                f"{known.arises} {known.by} A find of the audit means that another mechanism"
                " failed before: see the logs of the workers.",
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
            f" {format_duration(worker.silent_for)}, with {pluralize(held, 'job')} in flight.",
            "If the process still runs, find out why it cannot reach the database; if it died, its"
            " jobs are reclaimed by other workers, and this finding disappears.",
            problem=held > 0,
        )


def stuck_workers(facts: SystemFacts) -> Iterator[Finding]:
    """Workers that run jobs and cannot report their outcomes."""
    for id, pid, host, trouble in facts.troubled:
        yield Finding(
            "cannot-hand-in",
            f"Worker {id} (pid {pid} on {host}) cannot report outcomes: {trouble}",
            "It keeps these jobs and retries automatically. If this persists, fix the cause that"
            " the error names; a restart of the worker runs these jobs again.",
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
            "Restore the task's dependency; the breaker closes automatically when a probe"
            f" succeeds. To try all jobs at once: outlast close-breaker {breaker.queue}"
            f" {breaker.task}",
        )


def failing_sources(facts: SystemFacts) -> Iterator[Finding]:
    """Sources that cannot receive, and those without a report for a while."""
    for source in [one for one in facts.bridges if one.kind == SOURCE]:
        silent = format_duration(source.silent_for)
        if source.silent_for > SILENT_SOURCE_S:
            yield Finding(
                "source-silent",
                f"No worker has received from the source {source.name!r} for {silent}.",
                f"If it is still declared: outlast worker APP, or outlast source {source.name} APP",
                problem=False,
            )
        elif source.error:
            yield Finding(
                "source-failing",
                f"The source {source.name!r} ({source.broker}) cannot receive: {source.error}",
                "Restore the broker; the source retries automatically.",
            )


def undropped_days(facts: SystemFacts) -> Iterator[Finding]:
    """Days of the archive between the detach and the drop. The duty does both in one pass."""
    if names := facts.archive.detached:
        yield Finding(
            "archive-late",
            f"{pluralize(len(names), 'table')} of the archive {'is' if len(names) == 1 else 'are'}"
            f" detached and not dropped: {', '.join(names[:3])}{', …' * (len(names) > 3)}.",
            "The duty `archive` drops them when their retention is over. Rename one to keep it.",
            problem=False,
        )


def dead_jobs(facts: SystemFacts) -> Iterator[Finding]:
    dead = sum(queue.counts.get(State.DEAD, 0) for queue in facts.queues)
    if dead:
        yield Finding(
            "dead",
            f"{pluralize(dead, 'dead job')} wait{'s' * (dead == 1)} for an operator.",
            "outlast dead lists them with their reasons, outlast retry retries them.",
            problem=False,
        )


def schema_ahead(facts: SystemFacts) -> Iterator[Finding]:
    if facts.version > facts.database.host.known_version:
        yield Finding(
            "newer-schema",
            f"The tables are at version {facts.version}; this release knows version"
            f" {facts.database.host.known_version} and can work with them.",
            "Upgrade outlast here when the deployment is complete.",
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
    failing_sources,
    undropped_days,
    dead_jobs,
    schema_ahead,
)
