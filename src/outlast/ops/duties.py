"""Maintenance that any process may do: claimed like a job, one process at a time, on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from ..model.lifecycle import State
from .dependents import notify_dependents
from .operation import BEGIN, Op, Pipeline, Rows, Statement


@dataclass(slots=True)
class DutyTally:
    """What one pass of a duty did."""

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
        """A pass that healed nothing and failed at something is no success: the net is broken, or
        all that it finds is. A pass that had to leave everything alone is one."""
        if self.failed and not self.healed and self.error is None:
            return replace(self, error=f"{self.failed} of {self.found} failed and none was healed")
        return self


def take_duty(name: str, every: float, worker: str, known: float = 0.0) -> Op[float | None]:
    """For the one process that should do this duty now, when it is due again; None for the others.
    That is a little sooner than asked for, because whoever asks next does not come at the very
    moment. `known` is what this worker was answered last: if the row names this worker and another
    moment, the answer to its take got lost, and the duty is still to be done."""
    given = {"name": name, "every": every, "soon": every * 0.8, "worker": worker, "known": known}
    rows: Rows = yield Statement("take_duty", given)
    return rows[0][0] if rows else None


def report_duty(name: str, tally: DutyTally) -> Op[None]:
    """If the answer to it is lost, it is said again and counted twice: these sums are to be looked
    at, and nothing is decided by them."""
    yield Statement("report_duty", {"name": name, **asdict(tally)})


def record_duties(tallies: Mapping[str, DutyTally], every: float, worker: str) -> Op[None]:
    """The same for what nobody takes, because every process does it or because it is a part of
    another duty."""
    yield Pipeline(
        Statement("record_duty", {"name": name, "every": every, "worker": worker, **asdict(tally)})
        for name, tally in tallies.items()
    )


def expire(limit: int = 500, skip: int = 0) -> Op[list[str]]:
    """End jobs that are past their own expiry; they never run late."""
    yield BEGIN
    rows: Rows = yield Statement("expire", {"limit": limit, "skip": skip})
    yield from notify_dependents([(id, State.CANCELLED) for id, tied in rows if tied])
    return [id for id, _ in rows]
