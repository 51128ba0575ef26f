"""The life of jobs in a few lines of plain Python: what the stores must agree with.

No clock: time passes for a job when a test says so. No SQL, no threads, no batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

QUEUED = ("scheduled", "ready")
FINAL = ("succeeded", "dead", "cancelled")


@dataclass
class ModelJob:
    id: str
    queue: str
    key: str | None
    args: str
    priority: int
    max_attempts: int
    max_crashes: int
    state: str = "ready"
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    fence: int = 0
    worker: str | None = None
    cancelling: bool = False
    due: bool = False  # scheduled, and its time has come
    expired: bool = False
    lost: bool = False  # running, and its lease ran out
    ends: dict[int, str] = field(default_factory=dict)  # by fence: how that claim ended

    def seen(self) -> tuple[object, ...]:
        """What a row shows of it."""
        return (
            self.state, self.attempt, self.failures, self.crashes, self.fence, self.worker,
            self.cancelling,
        )  # fmt: skip


class Refused(Exception):
    """The model says no."""


class Model:
    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self.paused: set[str] = set()

    def enqueue(self, asked: list[ModelJob]) -> list[str]:
        """The id that each job asked for ends up with; all or none."""
        standing = {(one.queue, one.key): one for one in self.jobs.values() if one.key}
        made: dict[str, ModelJob] = {}
        answer = []
        for one in asked:
            holder = standing.setdefault((one.queue, one.key), one) if one.key else one
            if holder.args != one.args:
                raise Refused
            made.setdefault(holder.id, holder)
            answer.append(holder.id)
        self.jobs |= {id: one for id, one in made.items() if id not in self.jobs}
        return answer

    def promote(self) -> None:
        for one in self.jobs.values():
            if one.state == "scheduled" and one.due:
                one.state, one.due = "ready", False

    def claimable(self, queue: str) -> list[ModelJob]:
        self.promote()
        return [
            one
            for one in self.jobs.values()
            if one.state == "ready" and one.queue == queue
            and not one.expired and queue not in self.paused
        ]  # fmt: skip

    def claim(self, id: str, worker: str) -> None:
        one = self.jobs[id]
        one.state, one.worker, one.lost = "running", worker, False
        one.attempt += 1
        one.fence += 1

    def holds(self, id: str, fence: int) -> bool:
        one = self.jobs.get(id)
        return one is not None and one.state == "running" and one.fence == fence

    def finish(self, id: str, fence: int, outcome: str) -> bool:
        """Whether it is accepted. One that was accepted before is accepted, and changes nothing."""
        if not self.holds(id, fence):
            one = self.jobs.get(id)
            return one is not None and one.ends.get(fence) == outcome
        one = self.jobs[id]
        one.ends[fence] = outcome
        one.failures += outcome in ("failed", "timed-out", "permanent", "undecodable")
        one.crashes += outcome == "crashed"
        one.attempt -= outcome == "released"
        one.state = self._next(one, outcome)
        if one.cancelling and one.state in QUEUED:
            one.state = "cancelled"
        one.worker = None if one.state in QUEUED else one.worker
        one.due = one.lost = False
        return True

    def _next(self, one: ModelJob, outcome: str) -> str:
        match outcome:
            case "succeeded" | "cancelled":
                return outcome
            case "permanent" | "undecodable":
                return "dead"
            case "failed" | "timed-out":
                return "dead" if one.failures >= one.max_attempts else "scheduled"
            case "crashed":
                return "dead" if one.crashes >= one.max_crashes else "ready"
            case "postponed":
                return "scheduled"
            case _:
                return "ready"

    def reclaim(self) -> int:
        lost = [one for one in self.jobs.values() if one.state == "running" and one.lost]
        for one in lost:
            self.finish(one.id, one.fence, "crashed")
            if one.cancelling:  # asked to stop, it has: no cap and no retry matters any more
                one.state = "cancelled"
        return len(lost)

    def cancel(self, id: str) -> None:
        one = self.jobs[id]
        if one.state in ("succeeded", "dead"):
            raise Refused
        if one.state == "running":
            one.cancelling = True
        elif one.state in QUEUED:
            one.state, one.due = "cancelled", False

    def redrive(self, ids: list[str]) -> set[str]:
        revived = {id for id in ids if self.jobs[id].state in ("dead", "cancelled")}
        for id in revived:
            one = self.jobs[id]
            one.state, one.worker = "ready", None
            one.attempt = one.failures = one.crashes = 0
            one.cancelling = one.expired = False
        return revived

    def expire(self) -> set[str]:
        late = {one.id for one in self.jobs.values() if one.state in QUEUED and one.expired}
        for id in late:
            self.jobs[id].state, self.jobs[id].due = "cancelled", False
        return late

    def prune(self, state: str) -> int:
        gone = [id for id, one in self.jobs.items() if one.state == state]
        for id in gone:
            del self.jobs[id]
        return len(gone)
