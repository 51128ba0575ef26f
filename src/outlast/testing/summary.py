"""The summary of a drain: the number of attempts by outcome, and every failure with its
traceback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..model.humanize import pluralize
from ..model.lifecycle import Outcome, State
from ..model.outcome import Transition
from ..worker.worker_metrics import WorkerMetrics

AGAIN = frozenset({State.SCHEDULED, State.READY})


class Failure(NamedTuple):
    """An attempt that did not succeed."""

    job: str
    task: str
    attempt: int
    state: State  # of the job after it: scheduled, if it is retried
    type: str  # of the error
    message: str
    traceback: str

    def __str__(self) -> str:
        text = f"{self.task} {self.job}, attempt {self.attempt}, now {self.state}:"
        text += f" {self.type}: {self.message}"
        return f"{text}\n{self.traceback.rstrip()}" if self.traceback else text


@dataclass(frozen=True, slots=True)
class Drained:
    """The summary of a drain."""

    succeeded: int
    dead: int
    cancelled: int
    retried: int  # failed attempts whose jobs are retried
    failures: tuple[Failure, ...]  # in the order in which they happened
    left: Mapping[str, int]  # unfinished jobs by state, for instance those scheduled for later

    @property
    def attempts(self) -> int:
        return self.succeeded + self.dead + self.cancelled + self.retried

    def __str__(self) -> str:
        counts = (
            f"{self.succeeded} succeeded, {self.dead} dead, {self.cancelled} cancelled,"
            f" {self.retried} retried"
        )
        left = ", ".join(f"{number} {state}" for state, number in self.left.items())
        return f"{counts}; left: {left or 'none'}"


class JobsFailed(AssertionError):
    """Jobs died or were retried in a drain that should raise. `drained` is its summary."""

    def __init__(self, drained: Drained) -> None:
        self.drained = drained
        count = pluralize(len(drained.failures), "attempt")
        super().__init__("\n\n".join([f"{count} failed ({drained})", *map(str, drained.failures)]))


class RecordedOutcomes(WorkerMetrics):
    """Records each outcome that the store has accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Failure] = []
        self.retried = 0

    def add_outcome(self, transition: Transition, state: State) -> None:
        super().add_outcome(transition, state)
        if transition.error is None or transition.outcome is Outcome.CANCELLED:
            return
        self.retried += state in AGAIN
        claim, error = transition.claim, transition.error
        facts = (error.get(name) or "" for name in ("type", "message", "traceback"))
        self.failures.append(Failure(claim.id, claim.task, claim.attempt, state, *facts))

    def summary(self, states: Mapping[str, int]) -> Drained:
        counts: Counter[str] = self.counts
        left = {s: n for s, n in states.items() if n and not State(s).final}
        return Drained(
            counts[State.SUCCEEDED], counts[State.DEAD], counts[State.CANCELLED],
            self.retried, tuple(self.failures), left,
        )  # fmt: skip
