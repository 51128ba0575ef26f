"""Quotas: new jobs are counted in the transaction that inserts them.

    ours      insert ─▶ count the new ones, or refuse ─▶ commit
    caller's  reserve and commit separately ─▶ insert ─▶ settle the reservation ─▶ caller commits

A counter is a row. Locked until a caller commits, it would block all other producers; so on
PostgreSQL a caller's jobs are counted in a separate transaction, as a reservation, which is settled
in the caller's. After a rollback the reservation is open again, lapses, and is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..model.admission import Admission
from ..model.errors import QuotaExceeded
from ..model.job import Job, NewJob
from ..model.lifecycle import State
from ..model.quota import quota_exceeded
from ..model.timestamps import to_datetime
from .admission import enqueue_bounded
from .enqueue import enqueue
from .operation import BEGIN, Op, Rows, Statement, creates_database

RESERVED_S = 30.0  # seconds after which a reservation that is not settled lapses
LAPSED_ROWS = 1000

Counts = Counter[tuple[str, str]]  # jobs by queue and lane; '' is the whole queue


def count_jobs(jobs: Iterable[tuple[str, str | None]], queues: Collection[str]) -> Counts:
    """Jobs of queues with quotas, each with its queue and lane."""
    counts: Counts = Counter()
    for queue, lane in jobs:
        if queue in queues:
            counts[queue, ""] += 1
            if lane is not None:
                counts[queue, lane] += 1
    return counts


@creates_database
def enqueue_in_quota(
    jobs: Sequence[NewJob],
    full: Sequence[Admission],
    queues: Collection[str],
    reservation: str | None = None,
    ours: bool = True,
) -> Op[list[Job]]:
    """Insert jobs, all or none, if the new ones fit the quotas of these queues. Jobs whose key is
    taken, jobs that were sent before, and jobs that a full queue dropped are not new."""
    yield BEGIN
    before: Rows = yield Statement("existing_jobs", rows=[{"id": job.id} for job in jobs])
    new = {job.id for job in jobs}.difference(row[0] for row in before)
    if full:
        made = yield from enqueue_bounded(jobs, full, ours=ours)
    else:
        made = yield from enqueue(jobs, ours=ours)
    admitted = {
        job.id: (job.queue, job.lane)
        for job in made
        if job.id in new and job.state is not State.CANCELLED
    }
    counts = count_jobs(admitted.values(), queues)
    if reservation is not None:
        counts -= yield from _settle(reservation, counts)
    if counts:
        yield from _take(counts)
    return made


def keeps_its_snapshot() -> Op[bool]:
    """Whether this transaction does not see what others commit in the meantime."""
    rows: Rows = yield Statement("transaction_isolation")
    return rows[0][0] in ("repeatable read", "serializable")


@creates_database
def reserve(counts: Counts, reservation: str) -> Op[None]:
    """Count jobs that a caller's transaction is about to insert; idempotent."""
    yield BEGIN
    existing: Rows = yield Statement("reservation_exists", {"id": reservation})
    if existing:
        return
    taken = yield from _take(counts)
    yield Statement("reserve_quota", {"id": reservation}, rows=taken)


def return_lapsed(seconds: float = RESERVED_S) -> Op[int]:
    """Return lapsed reservations, of jobs that were rolled back or not inserted; returns the number
    of jobs."""
    yield BEGIN
    given = {"seconds": seconds, "limit": LAPSED_ROWS}
    rows: Rows = yield Statement("lapsed_reservations", given)
    back: Counter[tuple[str, str, float]] = Counter()
    for queue, lane, number, starts_at in rows:
        back[queue, lane, float(starts_at)] += int(number)
    if back:
        yield Statement(
            "return_quota",
            rows=[
                {"queue": queue, "lane": lane, "starts_at": starts_at, "asked": number}
                for (queue, lane, starts_at), number in sorted(back.items())
            ],
        )
    return _jobs_in(back)


def _jobs_in(back: Counter[tuple[str, str, float]]) -> int:
    """The number of jobs: each counts in its queue, in its lane, or in both."""
    whole, lanes = Counter[str](), Counter[str]()
    for (queue, lane, _), number in back.items():
        (lanes if lane else whole)[queue] += number
    return (whole | lanes).total()


def _settle(reservation: str, counts: Counts) -> Op[Counts]:
    """Use a reservation for inserted jobs; returns the counts that it covers. The rest of it
    lapses."""
    given = {"id": reservation}
    whole: Rows = yield Statement("settle_quota", given, _rows(counts))
    settled = {(queue, lane): counts[queue, lane] for queue, lane in whole}
    if rest := counts - Counter(settled):
        partly: Rows = yield Statement("use_reservation", given, _rows(rest))
        settled |= {(queue, lane): counts[queue, lane] for queue, lane in partly}
    return Counter(settled)


def _take(counts: Counts) -> Op[list[dict[str, object]]]:
    """Count jobs, or raise QuotaExceeded; returns the counts that have a quota."""
    rows = _rows(counts)
    taken: Rows = yield Statement("take_quota", rows=rows)
    found = {(queue, lane) for queue, lane in taken}
    if missing := [row for row in rows if (row["queue"], row["lane"]) not in found]:
        used: Rows = yield Statement("quota_use", rows=missing)  # none of those without a quota
        if used:
            raise _refusal(*used[0])
    return [row for row in rows if (row["queue"], row["lane"]) in found]


def _rows(counts: Counts) -> list[dict[str, object]]:
    return [
        {"queue": queue, "lane": lane, "asked": number}
        for (queue, lane), number in sorted(counts.items())
    ]


def _refusal(
    queue: str, lane: str, asked: int, allowed: int, used: int, resets_at: float
) -> QuotaExceeded:
    at = to_datetime(float(resets_at))
    numbers = {"asked": int(asked), "allowed": int(allowed), "used": int(used)}
    return quota_exceeded(queue, lane or None, **numbers, resets_at=at)


def prune_quotas(limit: int) -> Op[int]:
    """Remove a batch of counters of past periods; returns their number."""
    rows: Rows = yield Statement("prune_quotas", {"limit": limit})
    return len(rows)
