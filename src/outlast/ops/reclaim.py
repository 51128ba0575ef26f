"""Reclaim: any process ends the lost claims of dead or stalled owners, guarded as in a finish.

    claim            renew     renew      ✝ the owner dies
    ├─────────────────┼─────────┼─────────┼──────────────────────────────┤
                                          │ exit    its supervisor sees the exit at once
                                          │ lock    its liveness lock is free: about half a second
                                          │ lease   no other sign: when its lease ends
    and without a death:                    lease     its process is stopped, or wedged
                                            deadline  it exceeds its own timeout

Whatever the sign, the job becomes ready again, with one more crash (past a deadline: one more
failure), or ends if that exceeds its maximum. While the owner's process exists (its liveness lock
is held) no crash is charged: the attempt has stalled. A job that was only offered to a remote
worker never began, and is released with nothing charged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.claim import Claim
from ..model.lease_trust import ALWAYS, BELIEVE, Belief
from ..model.lifecycle import Outcome, State
from ..model.outcome import AttemptEnd, Transition, crashed, decide, release, stalled
from ..model.retry import Retry
from ..model.safe_text import error_summary
from ..model.worker_names import is_offer
from .finish import finish
from .job_actions import record_action, record_actions
from .operation import BEGIN, Op, Row, Rows, Statement

# The transition of an attempt, by its task's policy.
DecideFn = Callable[[Claim, AttemptEnd], Transition]
LockedFn = Callable[[Sequence[str]], Collection[str]]  # those whose liveness lock is held


_WORKER = Claim._fields.index("worker")


def none_locked(workers: Sequence[str]) -> Collection[str]:
    """For callers without liveness locks: every owner of an expired lease counts as dead."""
    return ()


def ignore_probe() -> None:
    """For callers that do not judge leases."""


@dataclass(slots=True)
class ReclaimResult:
    """The result of a pass over lost claims."""

    found: int = 0
    healed: int = 0
    skipped: int = 0  # its owner was faster
    failed: int = 0
    dead: int = 0
    cancelled: int = 0  # a cancel had been requested
    workers_removed: int = 0
    queues: set[str] = field(default_factory=set)
    ends: Counter[tuple[Outcome, State]] = field(default_factory=Counter)

    def add(self, other: ReclaimResult) -> None:
        self.found += other.found
        self.healed += other.healed
        self.skipped += other.skipped
        self.failed += other.failed
        self.dead += other.dead
        self.cancelled += other.cancelled
        self.workers_removed += other.workers_removed
        self.queues |= other.queues
        self.ends += other.ends


@dataclass(frozen=True, slots=True)
class LossSigns:
    """Signs of lost claims, and of other work for any worker."""

    clock: float = 0.0  # the database's, in seconds since 1970
    lease: bool = False  # one has expired, or will soon, or is too long
    workers: tuple[str, ...] = ()  # on SQLite: workers whose lock files must be checked
    fleet: int = 1  # the number of workers that share these checks
    flows: bool = False  # a cancelled flow has jobs that are not cancelled yet
    cancels: bool = False  # callers' transactions requested the cancel of running jobs
    unlinked: bool = False  # jobs enqueued after existing ones have not been counted yet
    expired: bool = False  # jobs wait past their own expiry
    waits: bool = False  # a wait has timed out, or a signal came in a caller's transaction
    schedule_due: float | None = None  # the time since which the first schedule is due


class Refusal(NamedTuple):
    """An outcome refused because its claim was lost."""

    job: str
    fence: int
    worker: str
    outcome: str


def record_refusals(refused: Sequence[Refusal]) -> Op[None]:
    """Record the outcomes that zombies were refused. They are not events of a job: it did not
    change."""
    yield from record_actions("write-refused", [one._asdict() for one in refused])


def signs_of_loss(soon: float = 0.0, far: float = ALWAYS) -> Op[LossSigns]:
    """Whether there are lost claims, or will be within `soon` seconds, or a lease lasts for more
    than `far` seconds. One statement, which locks no row."""
    rows: Rows = yield Statement("signs_of_loss", {"soon": soon, "far": far})
    return LossSigns(
        clock=sum(float(what) for kind, what in rows if kind == "clock"),
        lease=any(kind == "lease" for kind, _ in rows),
        workers=tuple(what for kind, what in rows if kind == "worker"),
        fleet=sum(int(what) for kind, what in rows if kind == "fleet"),
        flows=any(kind == "flow" for kind, _ in rows),
        cancels=any(kind == "cancel" for kind, _ in rows),
        unlinked=any(kind == "late" for kind, _ in rows),
        expired=any(kind == "expired" for kind, _ in rows),
        waits=any(kind == "wait" for kind, _ in rows),
        schedule_due=next((float(what) for kind, what in rows if kind == "schedule"), None),
    )


def reclaim(
    limit: int = 500, skip: int = 0, belief: Belief = BELIEVE, locked: LockedFn = none_locked,
    probed: Callable[[], None] = ignore_probe,
) -> Op[ReclaimResult]:  # fmt: skip
    """Reclaim jobs whose leases have expired, as far as these can be believed. `probed` is called
    when this transaction has the locks that renewals need."""
    yield BEGIN
    rows: Rows = yield Statement("expired_leases", {"limit": limit, "skip": skip, **belief.leases})
    probed()
    return (yield from release_expired(rows, "stopped renewing", locked))


def release_expired(rows: Rows, how: str, locked: LockedFn) -> Op[ReclaimResult]:
    """Release the claims of owners that stopped renewing. Attempts whose process exists, as its
    lock shows within this transaction, have stalled."""
    if not rows:
        return ReclaimResult()
    owners = sorted({row[_WORKER] for row in rows if row[_WORKER]})
    locked_rows: Rows = yield Statement("still_locked", {"workers": json.dumps(owners)})
    alive = frozenset(locked([id for (id,) in locked_rows]) if locked_rows else ())
    ids = [row[0] for row in rows if row[_WORKER] in alive]
    if not ids:
        return (yield from release_lost(rows, how))
    counted: Rows = yield Statement("stalls", {"ids": json.dumps(ids)})
    return (yield from release_lost(rows, how, dict.fromkeys(ids, 0) | dict(counted)))


def reclaim_overdue(
    slack: float, decided: DecideFn, limit: int = 500, skip: int = 0, belief: Belief = BELIEVE
) -> Op[ReclaimResult]:
    """Reclaim jobs that exceed their own deadline although their owner is alive."""
    yield BEGIN
    given = {"slack": slack, "limit": limit, "skip": skip, **belief.deadlines}
    rows: Rows = yield Statement("past_deadline", given)
    return (yield from release_overdue(rows, decided))


def reclaim_from_workers(
    workers: Iterable[str], how: str, detail: str = "", limit: int = 10_000
) -> Op[ReclaimResult]:
    """Reclaim the jobs of workers that are certainly gone. Their registrations are deleted in the
    same transaction, and the remover is recorded."""
    yield BEGIN
    names = yield from _confirmed_dead(workers, how)
    removed: Rows = yield Statement("remove_workers", {"workers": names})
    rows: Rows = yield Statement("jobs_of_workers", {"workers": names, "limit": limit, "skip": 0})
    swept = yield from release_lost(rows, detail or _DEATH_DETAIL[how])
    swept.workers_removed = len(removed)
    if removed or rows:
        yield from record_action(
            "worker-lost", [None], _worker_lost_event(removed, rows, how, detail)
        )
    return swept


def reclaim_some(workers: Iterable[str], how: str, limit: int, skip: int) -> Op[ReclaimResult]:
    """Reclaim a few of the jobs of workers that are gone; their registrations stay for now."""
    yield BEGIN
    names = yield from _confirmed_dead(workers, how)
    rows: Rows = yield Statement(
        "jobs_of_workers", {"workers": names, "limit": limit, "skip": skip}
    )
    return (yield from release_lost(rows, _DEATH_DETAIL[how]))


def _confirmed_dead(workers: Iterable[str], how: str) -> Op[str]:
    """A worker whose lock was free a moment ago may have reacquired it: the lock is tried again,
    and held until the end of this transaction, so that no process can prove itself alive with
    it."""
    names = json.dumps(sorted(workers))
    if how != "lock":
        return names
    rows: Rows = yield Statement("still_dead", {"workers": names})
    return json.dumps([id for (id,) in rows])


_DEATH_DETAIL = {
    "lock": "died (its liveness lock is free)",
    "exit": "died (its supervisor saw it exit)",
}


def release_lost(
    rows: Rows, how: str, stalls: Mapping[str, int] | None = None
) -> Op[ReclaimResult]:
    """Release lost claims, or end their jobs if that exceeds a maximum or a cancel was requested.
    `stalls`: the jobs whose owner's process exists, and how often each has stalled before."""
    stalls = stalls or {}
    lost = [
        _lost_transition(Claim(*claim), bool(cancelling), how, stalls.get(claim[0]))
        for *claim, cancelling, _ in rows
    ]
    return (yield from _apply(lost))


def release_overdue(rows: Rows, decided: DecideFn) -> Op[ReclaimResult]:
    return (
        yield from _apply([_overdue_transition(Claim(*claim), decided) for *claim, _, _ in rows])
    )


def decide_by_row(claim: Claim, ended: AttemptEnd) -> Transition:
    """For callers that know no tasks: by the policy in the row, or else by the default one."""
    retry = Retry.from_json(claim.retry) if claim.retry else Retry()
    return decide(claim, ended, retry, 0.5)


def _apply(lost: Sequence[Transition]) -> Op[ReclaimResult]:
    swept = ReclaimResult(found=len(lost))
    if lost:
        finished = yield from finish(lost)
        # Reclaimed by another sweeper, with the same outcome.
        before = {t.claim.claim_key for t in finished.duplicates}
        reclaimed = [
            (t, state) for t, state in finished.accepted if t.claim.claim_key not in before
        ]
        swept.healed = len(reclaimed)
        swept.skipped = swept.found - swept.healed
        swept.dead = sum(state is State.DEAD for _, state in reclaimed)
        swept.cancelled = sum(state is State.CANCELLED for _, state in reclaimed)
        swept.queues = {t.claim.queue for t, state in reclaimed if state is State.READY}
        swept.queues |= finished.queues
        swept.ends = Counter((t.outcome, state) for t, state in finished.accepted)
    return swept


def _lost_transition(claim: Claim, cancelling: bool, how: str, stalls: int | None) -> Transition:
    """A row that cannot be read goes dead, and blocks no other. A job that was only offered to a
    remote worker never began: it is released unspent, and no worker is charged."""
    try:
        if is_offer(claim.worker):
            return release(claim)
        if stalls is not None:
            evidence = _stall_evidence(claim, how, stalls)
            return stalled(claim, stalls, cancelling=cancelling, error=evidence)
        return crashed(claim, cancelling=cancelling, error=_evidence(claim, how))
    except (TypeError, ValueError) as error:
        return _undecodable(claim, error)


def _overdue_transition(claim: Claim, decided: DecideFn) -> Transition:
    """The transition of an overdue attempt; a row that cannot be read goes dead alone."""
    try:
        evidence = {
            "type": "TimedOut",
            "message": f"attempt {claim.attempt} still ran on worker {claim.worker} long after its"
            f" timeout of {claim.timeout:g} s",
            "traceback": "",
        }
        return decided(claim, AttemptEnd(Outcome.TIMED_OUT, error=evidence))
    except (TypeError, ValueError) as error:
        return _undecodable(claim, error)


def _undecodable(claim: Claim, error: Exception) -> Transition:
    evidence = {"type": "Undecodable", "message": f"its row cannot be read: {error_summary(error)}"}
    return Transition(claim, Outcome.UNDECODABLE, State.DEAD, error=evidence, crashes=1)


def _evidence(claim: Claim, how: str) -> dict[str, str]:
    return {
        "type": "WorkerLost",
        "message": f"worker {claim.worker} {how} during attempt {claim.attempt}"
        f" (lost worker {claim.crashes + 1} of at most {claim.max_crashes})",
        "traceback": "",
    }


def _stall_evidence(claim: Claim, how: str, before: int) -> dict[str, str]:
    return {
        "type": "WorkerStalled",
        "message": f"worker {claim.worker} {how} during attempt {claim.attempt}, and its process"
        f" exists (stalled worker {before + 1} of at most {claim.max_crashes})",
        "traceback": "",
    }


def _worker_lost_event(
    removed: Rows, rows: Sequence[Row], how: str, detail: str
) -> dict[str, object]:
    return {
        "workers": [{"id": id, "host": host, "pid": pid} for id, host, pid in removed],
        "how": how,
        "detail": detail,
        "jobs": [row[0] for row in rows[:100]],
        "number": len(rows),
    }
