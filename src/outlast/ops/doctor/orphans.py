"""The audit on demand: current orphans, by the names of the catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...model.humanize import format_duration, pluralize
from ...model.lease_trust import BELIEVE
from ...model.wait_check import DEAF, MISCOUNTED, UNFIRED
from .. import audit, flow_repair
from ..audit import LOWEST_ID, OrphanRow
from ..operation import Op, Rows, Statement
from ..reclaim import LockedFn, none_locked
from .findings import Finding

MAX_ROWS_PER_CLASS = 1000  # rows examined in each class
# Workers reclaim about twice a second and run duties every few seconds; later means never.
LATE_LEASE_S, LATE_TIMER_S, LATE_DEADLINE_S = 3.0, 10.0, 30.0

_CHECK_LOGS = "See the logs of the workers: each of them should do it within a second."
_START_WORKER = "Start a worker: it reclaims them within a second."
_MANUAL_CHANGE = "The tables were changed manually. A worker's audit repairs this within a minute."


@dataclass(frozen=True, slots=True)
class OrphanCheck:
    name: str
    finder: str
    noun: str
    sentence: str  # with {jobs}, {longest}
    advice: str  # while workers are alive
    advice_without_workers: str = _START_WORKER
    late: float | None = None
    problem: bool = True

    def params(self) -> Mapping[str, object]:
        given = {} if self.late is None else {"late": self.late}
        if self.finder in BELIEVING:
            given |= BELIEVE.leases
        return given | {"since": 0.0} if self.name == "owner-hung" else given


ORPHAN_CHECKS = (
    OrphanCheck("owner-dead", "find_owner_dead", "running job",
            "{jobs} lost the owner up to {longest} ago, and no worker has reclaimed them.",
            _CHECK_LOGS, late=LATE_LEASE_S),
    OrphanCheck("forgotten", "find_forgotten", "running job",
            "{jobs} had a worker that is alive and no longer renews them, for up to"
            " {longest}.", _CHECK_LOGS, late=LATE_LEASE_S),
    OrphanCheck("owner-dead", "find_endless", "running job",
            "{jobs} of unknown workers have leases that end too far in the future (in"
            " {longest}).", _MANUAL_CHANGE, "Start a worker: its audit reclaims them."),
    OrphanCheck("uncancelled", "find_uncancelled", "running job",
            "{jobs} should have been cancelled, and lost the owner up to {longest} ago.",
            _CHECK_LOGS, late=LATE_LEASE_S),
    OrphanCheck("owner-hung", "find_owner_hung", "running job",
            "{jobs} exceeded the timeout by up to {longest}.",
            "Find out why the duty 'deadline' fails, and why the handler blocks.",
            "Start a worker: it ends them within seconds.", LATE_DEADLINE_S),
    OrphanCheck("timer-lost", "find_timer_lost", "scheduled job",
            "{jobs} should have become ready up to {longest} ago.",
            "See the logs of the workers: every poll makes due jobs ready.",
            "Start a worker: its first poll makes due jobs ready.", LATE_TIMER_S),
    OrphanCheck("expired", "find_expired", "queued job",
            "{jobs} should have been cancelled at expires_at, up to {longest} ago.",
            "Find out why the duty 'expire' fails. These jobs do not run late.",
            "Start a worker, which cancels them. These jobs do not run late.", LATE_TIMER_S),
    OrphanCheck("unwoken", "find_unwoken", "waiting job",
            "{jobs} wait for a signal, a job or a time-out that came up to {longest} ago.",
            "Report it: no wake-up may be missed. The audit starts these jobs.",
            "Start a worker: its audit starts these jobs.", LATE_TIMER_S),
    OrphanCheck("invisible", "find_ownerless", "running job",
            "{jobs} have no owner or no lease, for up to {longest}.",
            _MANUAL_CHANGE, "Start a worker: its audit releases them."),
    OrphanCheck("invisible", "find_invisible", "queued job",
            "{jobs} have an owner or a lease, which only running jobs may have.",
            _MANUAL_CHANGE, "Start a worker: its audit repairs them."),
    OrphanCheck("half-cancelled", "find_half_cancelled", "flow",
            "{jobs} were cancelled up to {longest} ago, and some of their jobs were not.",
            _CHECK_LOGS, "Start a worker: it cancels the rest.", LATE_LEASE_S),
    OrphanCheck("poison", "find_poison", "job",
            "{jobs} ended dead after crashing their maximum number of workers.",
            "outlast dead shows them; outlast job ID shows which workers died, when and how.",
            "outlast dead shows them; outlast job ID shows which workers died, when and how.",
            problem=False),
    OrphanCheck("undecodable", "find_undecodable", "job",
            "{jobs} could not be read, and ended dead.",
            "outlast job ID shows the reason.",
            "outlast job ID shows the reason.", problem=False),
)  # fmt: skip

_WAITING = {
    UNFIRED: "{jobs} still wait although all their prerequisites have ended.",
    DEAF: "{jobs} wait for jobs that are dead, cancelled or gone.",
    MISCOUNTED: "{jobs} wait for a number of jobs that differs from their prerequisites.",
}
WAIT_CHECKS = {
    name: OrphanCheck(name, "waiting_after", "waiting job", sentence, _MANUAL_CHANGE,
                  "Start a worker: its audit repairs them.")
    for name, sentence in _WAITING.items()
}  # fmt: skip

FoundOrphans = list[tuple[OrphanCheck, list[OrphanRow]]]
BELIEVING = {"find_owner_dead", "find_endless", "find_uncancelled", "find_forgotten"}
BY_LEASE = {"find_owner_dead", "find_endless", "find_uncancelled", "find_owner_hung"}


def find_orphans(locked: LockedFn = none_locked) -> Op[FoundOrphans]:
    """The rows that each of the audit's finders returns now. Right after a clock step all leases
    look wrong: leases of existing processes are ignored here, and workers judge them."""
    found = []
    for check in ORPHAN_CHECKS:
        rows = yield from audit.find(check.finder, MAX_ROWS_PER_CLASS, 0, **check.params())
        if rows and check.finder in BY_LEASE:
            rows = yield from _without_live_owners(rows, locked)
        if rows:
            found.append((check, rows))
    inconsistent, _ = yield from flow_repair.inconsistent_waits(LOWEST_ID, MAX_ROWS_PER_CLASS)
    found += [
        (WAIT_CHECKS[name], [OrphanRow(id, 0.0) for id in ids])
        for name, ids in inconsistent.items()
    ]
    return found


def _without_live_owners(rows: list[OrphanRow], locked: LockedFn) -> Op[list[OrphanRow]]:
    ids = json.dumps([stray.id for stray in rows])
    owned: Rows = yield Statement("job_owners", {"ids": ids})
    workers = json.dumps(sorted({worker for _, worker in owned}))
    held: Rows = yield Statement("still_locked", {"workers": workers})
    living = set(locked([id for (id,) in held]) if held else ())
    kept = {id for id, worker in owned if worker in living}
    return [stray for stray in rows if stray.id not in kept]


def orphan_findings(found: FoundOrphans, alive: bool) -> Iterator[Finding]:
    for check, rows in found:
        jobs = pluralize(len(rows), check.noun) + (
            " (or more)" if len(rows) == MAX_ROWS_PER_CLASS else ""
        )
        longest = format_duration(max(stray.seconds for stray in rows))
        yield Finding(
            check.name,
            check.sentence.format(jobs=jobs, longest=longest),
            f"{check.advice if alive else check.advice_without_workers} For example: {rows[0].id}",
            check.problem,
        )


def find_dangling() -> Op[dict[str, int]]:
    """The number of deleted jobs, among the oldest, that still have attempts, events or steps."""
    found = {}
    for kind in audit.KINDS:
        gone, _ = yield from audit.dangling_rows(kind, LOWEST_ID, MAX_ROWS_PER_CLASS)
        if gone:
            found[kind] = len(gone)
    return found


def dangling_findings(found: Mapping[str, int]) -> Iterator[Finding]:
    for kind, number in found.items():
        yield Finding(
            "left-behind",
            f"There are {kind} of {pluralize(number, 'job')} that no longer exist.",
            "Jobs were deleted manually; a worker's audit removes these rows.",
            problem=False,
        )
