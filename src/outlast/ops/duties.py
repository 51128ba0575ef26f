"""Duties: maintenance that any process may run, claimed like a job, one process at a time,
recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from ..model.lifecycle import State
from .dependents import notify_dependents
from .operation import BEGIN, Op, Pipeline, Rows, Statement


@dataclass(slots=True)
class DutyTally:
    """The result of one pass of a duty."""

    found: int = 0
    healed: int = 0
    skipped: int = 0
    failed: int = 0
    error: str | None = None

    def add(self, other: DutyTally) -> None:
        self.found += other.found
        self.healed += other.healed
        self.skipped += other.skipped
        self.failed += other.failed

    def with_verdict(self) -> DutyTally:
        """A pass that healed nothing and failed at something counts as an error: the duty is
        broken, or every row that it finds is. A pass that only skipped rows is a success."""
        if self.failed and not self.healed and self.error is None:
            return replace(self, error=f"{self.failed} of {self.found} failed and none was healed")
        return self


def take_duty(name: str, every: float, worker: str, known: float = 0.0) -> Op[float | None]:
    """The next due time, for the one process that should run this duty now; None for the others.
    The period is slightly shortened, because the next process does not poll at that exact moment.
    `known` is this worker's last return value: if the row names this worker and another time, the
    response to its take was lost, and the duty is still to run."""
    given = {"name": name, "every": every, "soon": every * 0.8, "worker": worker, "known": known}
    rows: Rows = yield Statement("take_duty", given)
    return rows[0][0] if rows else None


def report_duty(name: str, tally: DutyTally) -> Op[None]:
    """Record a pass. After a lost response it is sent again and counted twice: these sums are
    informative only."""
    yield Statement("report_duty", {"name": name, **asdict(tally)})


def record_duties(tallies: Mapping[str, DutyTally], every: float, worker: str) -> Op[None]:
    """Record passes of duties that are not taken: every process runs them, or they are part of
    another duty."""
    yield Pipeline(
        Statement("record_duty", {"name": name, "every": every, "worker": worker, **asdict(tally)})
        for name, tally in tallies.items()
    )


def expire(limit: int = 500, skip: int = 0) -> Op[list[str]]:
    """Cancel jobs past their expiry; they never run late."""
    yield BEGIN
    rows: Rows = yield Statement("expire", {"limit": limit, "skip": skip})
    yield from notify_dependents([(id, State.CANCELLED) for id, tied in rows if tied])
    return [id for id, _ in rows]
