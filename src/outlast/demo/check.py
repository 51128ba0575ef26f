"""Check the database against the ledger that the handlers wrote."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from ..model.job import Job
from ..verify.distribution import Distribution
from ..verify.ledger import LedgerEntry
from .tasks import DONE, FAILED, STARTED


@dataclass(frozen=True)
class DemoVerdict:
    enqueued: int
    follow_ups: int
    succeeded: int
    lost: int  # enqueued, and not in the database
    dead: int
    stuck: int  # in the database, and not ended
    accepted_twice: int  # orders with more than one receipt
    unproven: int  # succeeded without a finished run in the ledger, or without its receipt
    attempts: int
    repeated: int  # of these, not the first of their job
    failed: int  # attempts that raised as planned
    kills: int
    taken_over: int  # attempts that a kill interrupted and another worker started again
    recovery: list[float]  # seconds from each of these kills until then, sorted
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.broken and self.succeeded == self.enqueued + self.follow_ups

    @property
    def broken(self) -> bool:
        """Whether the guarantees hold, independently of the machine's speed."""
        return any((self.lost, self.dead, self.accepted_twice, self.unproven))

    def recovered_within(self, share: float) -> float | None:
        """Seconds within which this share of the jobs ran again."""
        return Distribution(self.recovery).percentile(share) if self.recovery else None

    def as_json(self) -> dict[str, object]:
        facts = asdict(self)
        facts["recovery"] = {
            name: None if (value := self.recovered_within(share)) is None else round(value, 3)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        }
        return {"ok": self.ok, **facts, "seconds": round(self.seconds, 2)}


def judge(
    enqueued: Sequence[str],
    jobs: Iterable[Job],
    entries: Iterable[LedgerEntry],
    kills: Mapping[int, float],
    seconds: float,
) -> DemoVerdict:
    """Compare the enqueued jobs, the database and the ledger."""
    rows = {job.id: job for job in jobs}
    seen = list(entries)
    started = [entry.subject for entry in seen if entry.kind == STARTED]
    states = Counter(str(job.state) for job in rows.values())
    receipts = Counter(job.args["n"] for job in rows.values() if job.task == "receipt")
    recovery = sorted(_recoveries(seen, kills))
    return DemoVerdict(
        enqueued=len(enqueued),
        follow_ups=sum(receipts.values()),
        succeeded=states["succeeded"],
        lost=sum(id not in rows for id in enqueued),
        dead=states["dead"],
        stuck=sum(not job.final for job in rows.values()),
        accepted_twice=sum(count - 1 for count in receipts.values()),
        unproven=_unproven(rows.values(), seen, receipts),
        attempts=len(started),
        repeated=len(started) - len(set(started)),
        failed=sum(entry.kind == FAILED for entry in seen),
        kills=len(kills),
        taken_over=len(recovery),
        recovery=recovery,
        seconds=seconds,
    )


def _unproven(jobs: Iterable[Job], seen: list[LedgerEntry], receipts: Counter[int]) -> int:
    """A result names its attempt: the ledger must have the end of that attempt."""
    done = {(entry.subject, entry.fence) for entry in seen if entry.kind == DONE}
    succeeded = [job for job in jobs if job.state == "succeeded"]
    unseen = sum((job.id, job.result) not in done for job in succeeded)
    return unseen + sum(receipts[job.args["n"]] == 0 for job in succeeded if job.task == "order")


def _recoveries(seen: list[LedgerEntry], kills: Mapping[int, float]) -> Iterable[float]:
    """For each attempt of a killed worker, the time until its job ran elsewhere."""
    starts: dict[str, list[LedgerEntry]] = defaultdict(list)
    failed = {(entry.subject, entry.fence) for entry in seen if entry.kind == FAILED}
    for entry in seen:
        if entry.kind == STARTED:
            starts[entry.subject].append(entry)
    for attempts in starts.values():
        for one, following in pairwise(attempts):
            if one.pid in kills and (one.subject, one.fence) not in failed:
                yield following.at - kills[one.pid]
