"""The life of jobs in a few lines of plain Python: what the stores must agree with.

No clock: time passes for a job when a test says so. No SQL, no threads, no batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

QUEUED = ("waiting", "scheduled", "ready")
FINAL = ("succeeded", "dead", "cancelled")
BROKEN = ("dead", "cancelled")


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
    after: list[str] = field(default_factory=list)
    needs: str = "succeeded"
    flow: str | None = None
    delayed: bool = False  # its own time is far off
    doomed: bool = False  # it ended because of another

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
        self.flows: dict[str, bool] = {}  # whether each was cancelled

    def waits_for(self, one: ModelJob) -> int | None:
        """How many of those that it comes after have still to end; None if it does not wait."""
        if one.state != "waiting":
            return None
        return sum(self.jobs[id].state not in FINAL for id in one.after)

    def settle(self) -> set[str]:
        """No counting: whoever waits looks at all that it comes after, until nobody changes.
        Returns those that ended by it."""
        ended: set[str] = set()
        changed = True
        while changed:
            changed = False
            for one in self.jobs.values():
                if one.state == "waiting" and self._waits_no_longer(one):
                    changed = True
                    ended |= {one.id} if one.doomed else set()
        return ended

    def _waits_no_longer(self, one: ModelJob) -> bool:
        before = [self.jobs[id].state for id in one.after]
        if one.needs == "succeeded" and any(state in BROKEN for state in before):
            one.state = "cancelled" if one.flow and self.flows[one.flow] else "dead"
            one.doomed = True
            return True
        if all(state in FINAL for state in before):
            one.state = "scheduled" if one.delayed else "ready"
            return True
        return False

    def cancel_flow(self, flow: str) -> None:
        self.flows[flow] = True
        for one in self.jobs.values():
            if one.flow == flow and one.state in QUEUED:
                one.state, one.due = "cancelled", False
            elif one.flow == flow and one.state == "running":
                one.cancelling = True
        self.settle()

    def doomed_by(self, ids: set[str]) -> set[str]:
        """Those that ended because of any of these, and because of those, and so on."""
        found: set[str] = set()
        while (
            more := {
                one.id
                for one in self.jobs.values()
                if one.doomed and one.state in BROKEN and set(one.after) & (ids | found)
            }
            - found
        ):
            found |= more
        return found

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
        for one in made.values():
            broken = any(self.jobs[id].state in BROKEN for id in one.after if id in self.jobs)
            if one.id not in self.jobs and one.needs == "succeeded" and broken:
                raise Refused
        self.jobs |= {id: one for id, one in made.items() if id not in self.jobs}
        self.settle()
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

    def finish(self, id: str, fence: int, outcome: str, to: str | None = None) -> bool:
        """Whether it is accepted. One that was accepted before is accepted, and changes nothing."""
        if not self.holds(id, fence):
            one = self.jobs.get(id)
            return one is not None and one.ends.get(fence) == outcome
        one = self.jobs[id]
        one.ends[fence] = outcome
        one.failures += outcome in ("failed", "timed-out", "permanent", "undecodable")
        one.crashes += outcome == "crashed"
        if outcome == "stalled" and one.max_crashes == 2:
            one.crashes = max(one.crashes, 1)  # a first stall makes it a suspect
        one.attempt -= outcome in ("released", "waited")
        one.state = to or self._next(one, outcome)
        if one.cancelling and one.state in QUEUED:
            one.state = "cancelled"
        one.worker = None if one.state in QUEUED else one.worker
        one.due = one.lost = False
        self.settle()
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
            case "stalled":
                return "dead" if one.max_crashes == 1 else "ready"
            case "postponed" | "waited":
                return "scheduled"
            case _:
                return "ready"

    def reclaim(self) -> int:
        lost = [one for one in self.jobs.values() if one.state == "running" and one.lost]
        for one in lost:
            # Asked to stop, it has: no cap and no retry matters any more.
            self.finish(one.id, one.fence, "crashed", "cancelled" if one.cancelling else None)
        return len(lost)

    def cancel(self, id: str) -> None:
        one = self.jobs[id]
        if one.state in ("succeeded", "dead"):
            raise Refused
        if one.state == "running":
            one.cancelling = True
        elif one.state in QUEUED:
            one.state, one.due = "cancelled", False
        self.settle()

    def redrive(self, ids: list[str]) -> set[str]:
        """Also those that ended because of them. Whose prerequisite stays as it is stays so too."""
        wanted = set(ids) | self.doomed_by(set(ids))
        revived = {id for id in wanted if self.jobs[id].state in BROKEN}
        for id in revived:
            one = self.jobs[id]
            if one.flow:
                self.flows[one.flow] = False  # it is open again
            one.state, one.worker = "waiting" if one.after else "ready", None
            one.attempt = one.failures = one.crashes = 0
            one.cancelling = one.expired = one.delayed = one.doomed = False
        return revived - self.settle()

    def expire(self) -> set[str]:
        late = {one.id for one in self.jobs.values() if one.state in QUEUED and one.expired}
        for id in late:
            self.jobs[id].state, self.jobs[id].due = "cancelled", False
        self.settle()
        return late

    def prune(self, state: str) -> int:
        gone = [one.id for one in self.jobs.values() if one.state == state and not self.needed(one)]
        for id in gone:
            del self.jobs[id]
        for one in self.jobs.values():
            one.after = [id for id in one.after if id in self.jobs]
        return len(gone)

    def needed(self, one: ModelJob) -> bool:
        """By its own flow, or by somebody who may still read it."""
        others = self.jobs.values()
        return any(o.flow == one.flow and o.flow and o.state not in FINAL for o in others) or any(
            one.id in o.after
            and o.state != "succeeded"
            and (o.state != "cancelled" or one.state == "succeeded")
            for o in others
        )
