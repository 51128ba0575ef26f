"""What is wrong here? Facts from the database, and one pure function per ailment.

A finding carries a name from the catalogue of orphans where there is one, a sentence that says
what was seen, and what to do. A new check is a function from `Facts` to findings in `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..model.lifecycle import State
from ..model.words import count, span
from . import report
from .report import Duty, Queue, Worker
from .statement import Op, Rows, Statement, Together

# Nets look about twice a second, and duties every few seconds: what is this late, nobody does.
LATE_LEASE, LATE_DUTY, LATE_TIMER = 3.0, 60.0, 10.0

# Before this, a commit that restarts the log while a checkpoint runs could lose its end.
SAFE_SQLITE = (3, 51, 3)


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    sentence: str
    advice: str
    problem: bool = True  # False: worth knowing, and nothing is wrong


class Late(NamedTuple):
    """How many rows are late, and the longest of them by how many seconds."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rows cannot tell."""

    known_version: int  # the version of the tables that this release was made for
    sqlite: tuple[int, ...] | None = None
    pooled: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    around: Surroundings
    now: float
    version: int
    queues: list[Queue]
    workers: list[Worker]
    owners: dict[str, int]
    duties: list[Duty]
    unhandled: list[tuple[str, str, int]]
    unowned: Late
    overdue: Late
    outlived: Late

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]


def examine(around: Surroundings) -> Op[list[Finding]]:
    return findings((yield from facts(around)))


def facts(around: Surroundings) -> Op[Facts]:
    version, _ = yield from report.schema_version()
    now = yield from report.clock()
    queues = yield from report.queues()
    workers = yield from report.workers()
    duties = yield from report.duties()
    unhandled = yield from report.unhandled()
    owners, unowned, overdue, outlived = yield Together(
        [Statement(name) for name in ("owners", "unowned", "overdue", "outlived")]
    )
    return Facts(
        around, now, version, queues, workers, dict(owners), duties, unhandled,
        _late(unowned), _late(overdue), _late(outlived),
    )  # fmt: skip


def findings(facts: Facts) -> list[Finding]:
    """Everything that was found, problems first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: not finding.problem)


def unserved_queues(facts: Facts) -> Iterator[Finding]:
    for queue in facts.queues:
        ready = queue.counts.get(State.READY, 0)
        if ready and not any(worker.serves(queue.name) for worker in facts.alive):
            yield Finding(
                "unhandled",
                f"The queue {queue.name!r} has {count(ready, 'ready job')} and no live worker.",
                f"Start one: outlast worker APP --queues {queue.name}",
            )


def unknown_tasks(facts: Facts) -> Iterator[Finding]:
    for queue, task, number in facts.unhandled:
        if any(worker.serves(queue) for worker in facts.alive):
            yield Finding(
                "unhandled",
                f"No live worker that serves {queue!r} knows the task {task!r};"
                f" {count(number, 'job')} of it wait{'s' * (number == 1)}.",
                "Deploy the code that defines it, or cancel the jobs. They are kept, unspent.",
            )


def lost_owners(facts: Facts) -> Iterator[Finding]:
    if facts.unowned.number and facts.unowned.seconds > LATE_LEASE:
        yield Finding(
            "owner-dead",
            f"{count(facts.unowned.number, 'running job')} lost the owner, at the longest"
            f" {span(facts.unowned.seconds)} ago, and nobody has taken them back.",
            "Look into the logs of the workers: each of them should do it within a second."
            if facts.alive
            else "Start a worker: any one takes them back within a second.",
        )


def late_timers(facts: Facts) -> Iterator[Finding]:
    if facts.overdue.number and facts.overdue.seconds > LATE_TIMER:
        yield Finding(
            "timer-lost",
            f"{count(facts.overdue.number, 'scheduled job')} should have become ready, at the"
            f" longest {span(facts.overdue.seconds)} ago.",
            "Look into the logs of the workers: any look for work makes due jobs ready."
            if facts.alive
            else "Start a worker: its first look makes due jobs ready.",
        )


def outlived_jobs(facts: Facts) -> Iterator[Finding]:
    if facts.outlived.number and facts.outlived.seconds > LATE_TIMER:
        yield Finding(
            "expired",
            f"{count(facts.outlived.number, 'queued job')} should have been cancelled at"
            f" expires_at, at the longest {span(facts.outlived.seconds)} ago.",
            "Start a worker, or see why the duty 'expire' fails. They will not be run late.",
        )


def stalled_nets(facts: Facts) -> Iterator[Finding]:
    for duty in facts.duties:
        late = facts.now - duty.next_at.timestamp()
        if facts.alive and late > LATE_DUTY:
            yield Finding(
                "stalled-net",
                f"The duty {duty.name!r} is {span(late)} late: no live worker does it.",
                "Restart the workers one by one, and keep their logs.",
            )
        elif duty.error:
            yield Finding(
                "stalled-net",
                f"The duty {duty.name!r} failed when it was last done: {duty.error}",
                "It is tried again by itself; if this stays, the error says what to mend.",
            )


def silent_workers(facts: Facts) -> Iterator[Finding]:
    for worker in facts.workers:
        if worker.alive:
            continue
        held = facts.owners.get(worker.id, 0)
        yield Finding(
            "silent-worker",
            f"Worker {worker.id} (pid {worker.pid} on {worker.host}) has been silent for"
            f" {span(worker.silent_for)}, with {count(held, 'job')} in hand.",
            "If the process still runs, see what keeps it from the database; if it died, its jobs"
            " are taken back by others, and this line goes away by itself.",
            problem=held > 0,
        )


def paused_queues(facts: Facts) -> Iterator[Finding]:
    for queue in facts.queues:
        ready = queue.counts.get(State.READY, 0)
        if queue.paused and ready:
            yield Finding(
                "paused",
                f"The queue {queue.name!r} is paused, with {count(ready, 'ready job')}.",
                f"outlast resume {queue.name}",
                problem=False,
            )


def dead_jobs(facts: Facts) -> Iterator[Finding]:
    dead = sum(queue.counts.get(State.DEAD, 0) for queue in facts.queues)
    if dead:
        yield Finding(
            "dead",
            f"{count(dead, 'job')} gave up and wait{'s' * (dead == 1)} for someone to act.",
            "outlast dead shows them with their reasons, outlast retry gives them a new life.",
            problem=False,
        )


def schema_ahead(facts: Facts) -> Iterator[Finding]:
    if facts.version > facts.around.known_version:
        yield Finding(
            "newer-schema",
            f"The tables are at version {facts.version}, this release knows"
            f" {facts.around.known_version} and can work with them.",
            "Upgrade outlast here when the deploy is through.",
            problem=False,
        )


def old_sqlite(facts: Facts) -> Iterator[Finding]:
    version = facts.around.sqlite
    if version is not None and version < SAFE_SQLITE:
        yield Finding(
            "wal-reset",
            f"SQLite {'.'.join(map(str, version))} has the WAL-reset race: a checkpoint beside a"
            " commit can lose the end of the log.",
            "Outlast makes its own checkpoints safely. Let no other program checkpoint this file,"
            f" or use SQLite {'.'.join(map(str, SAFE_SQLITE))} or newer.",
            problem=False,
        )


def pooled_connection(facts: Facts) -> Iterator[Finding]:
    if facts.around.pooled:
        yield Finding(
            "pooled",
            "The connection goes through a pooler that shares sessions.",
            "This works, by polling instead of wake-ups, and a dead worker is noticed when its"
            " lease ends. Give workers a direct connection to make both faster.",
            problem=False,
        )


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    unserved_queues,
    unknown_tasks,
    lost_owners,
    late_timers,
    outlived_jobs,
    stalled_nets,
    silent_workers,
    paused_queues,
    dead_jobs,
    schema_ahead,
    old_sqlite,
    pooled_connection,
)


def _late(rows: Rows) -> Late:
    number, seconds = rows[0]
    return Late(int(number), float(seconds or 0.0))
