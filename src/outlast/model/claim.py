"""A claim: a job as the worker that runs it sees it, and the fence that proves the ownership."""

from __future__ import annotations

from typing import NamedTuple, NotRequired, TypedDict

ATTEMPT_LIMIT = 2**31 - 1  # the largest number that its column holds
FENCE_LIMIT = 2**63 - 1
# Job id, fence and owner. In one history of a database a fence has one owner; after a failover that
# lost commits, or in a restored backup, another owner may get the same fence.
ClaimKey = tuple[str, int, str]


class ClaimGuard(TypedDict):
    """The columns that guard a write under a claim, beside the job's id."""

    fence: int
    worker: str
    offered_by: NotRequired[str]


class ClaimEvent(ClaimGuard):
    """An event of a handler, or a row of its output, to be stored if its claim holds."""

    job: str
    kind: str
    data: str  # JSON text
    n: int  # its number within the claim: one that is stored again is kept once
    first: NotRequired[bool]  # of output: whether it is the first row of its claim


class Claim(NamedTuple):
    """A job that one worker owns: the columns of its row, and the fence that proves ownership."""

    id: str
    fence: int
    task: str
    args: str
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    max_crashes: int
    queue: str
    tenant: str
    priority: int
    run_at: float
    started_at: float
    created_at: float
    timeout: float | None
    retry: str | None
    trace: str | None
    key: str | None
    worker: str
    flow: str | None = None
    has_dependents: bool = False  # other jobs, hooks or a group depend on its end
    has_hooks: bool = False  # its end enqueues jobs
    lane: str | None = None
    offered_by: str | None = None  # the server that owns it until its remote worker accepts it

    @property
    def claim_key(self) -> ClaimKey:
        return self.id, self.fence, self.worker

    @property
    def guard(self) -> ClaimGuard:
        guard: ClaimGuard = {"fence": self.fence, "worker": self.worker}
        if self.offered_by is not None:
            guard["offered_by"] = self.offered_by
        return guard

    def event_row(self, kind: str, data: str, n: int) -> ClaimEvent:
        row: ClaimEvent = {
            "job": self.id, "fence": self.fence, "worker": self.worker,
            "kind": kind, "data": data, "n": n,
        }  # fmt: skip
        if self.offered_by is not None:
            row["offered_by"] = self.offered_by
        return row

    def owned_by(self, worker: str | None) -> bool:
        """Whether the row's owner is the owner of this claim."""
        return worker is not None and worker in (self.worker, self.offered_by)

    @property
    def at_limit(self) -> bool:
        """A counter of the row cannot grow any more, so the next claim would be indistinguishable
        from this one. Such a job is ended without a run."""
        return self.fence >= FENCE_LIMIT or self.attempt >= ATTEMPT_LIMIT

    @property
    def one_crash_left(self) -> bool:
        """One more lost worker would end the job. No two such jobs share a process, so that the
        next crash tells the poison job from its neighbours. A first crash proves nothing (hosts
        die, processes are replaced) and delays no other job."""
        return self.crashes > 0 and self.crashes + 1 >= self.max_crashes


# The columns that a claim returns, in the order of the fields.
CLAIM_COLUMNS = tuple(name for name in Claim._fields if name != "offered_by")
