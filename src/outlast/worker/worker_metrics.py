"""Metrics of a worker: counters and histograms of its own work.

Plain numbers, written by the worker and read from any thread without locks: a reader may see a
value that is one job old. Jobs are counted in batches, at each claim or once a second: a single job
costs only an entry in a list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from ..model.claim import Claim
from ..model.lifecycle import Outcome, State
from ..model.outcome import Transition
from ..ops.reclaim import ReclaimResult

# Seconds. A job may wait for hours behind others, and run for hours.
BUCKET_EDGES_S = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)
MAX_NAMES = 100  # distinct queues or tasks; the others share one name
OTHER_NAME = "other"

ReclaimKind = tuple[str, str]  # how a loss was detected, and its class of orphan


class DurationBuckets:
    """A histogram of durations. The last bucket has no upper edge."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKET_EDGES_S) + 1)
        self.total = 0.0

    def add(self, spans: Sequence[float]) -> None:
        """Add durations. Most fall into one bucket, as their shortest and longest show."""
        first, last = (
            bisect_left(BUCKET_EDGES_S, min(spans)),
            bisect_left(BUCKET_EDGES_S, max(spans)),
        )
        if first == last:
            self.counts[first] += len(spans)
        else:
            for span in spans:
                self.counts[bisect_left(BUCKET_EDGES_S, span)] += 1
        self.total += sum(spans)


class DurationBucketsByName(dict[str, DurationBuckets]):
    """One histogram per name; beyond MAX_NAMES, one for all other names."""

    def __missing__(self, name: str) -> DurationBuckets:
        if len(self) < MAX_NAMES or name == OTHER_NAME:
            made = self[name] = DurationBuckets()
            return made
        return self[OTHER_NAME]


class WorkerMetrics:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # counters without an attribute of their own
        self.waits = DurationBucketsByName()  # by queue: from the due time to the claim
        self.runs = DurationBucketsByName()  # by task: from the start of a handler to its end
        self.durations: defaultdict[str, list[float]] = defaultdict(list)  # not in `runs` yet
        self.ended: Counter[tuple[Outcome, State]] = Counter()  # without plain successes
        self.reclaimed: Counter[ReclaimKind] = Counter()

    def add_claims(self, claims: Sequence[Claim]) -> None:
        """Add the waits of claims. Both times are by the database's clock; a damaged row may hold
        anything."""
        for queue, group in groupby(claims, attrgetter("queue")):
            waits, some = self.waits[queue], list(group)
            try:
                waits.add([claim.started_at - claim.run_at for claim in some])
            except TypeError:
                waits.counts[-1] += len(some)

    def count_durations(self) -> None:
        """Move new durations into the histograms."""
        for task, spans in self.durations.items():
            self.runs[task].add(spans)
        self.durations.clear()

    def add_outcome(self, transition: Transition, state: State) -> None:
        """Count an outcome other than a plain success."""
        self.ended[transition.outcome, state] += 1

    def add_reclaimed(self, reason: str, result: ReclaimResult) -> None:
        """Count reclaimed jobs by the class of orphan."""
        again = result.healed - result.cancelled - result.dead
        if reason == "deadline":  # its dead jobs have used up their attempts
            lost, ended = "owner-hung", "owner-hung"
        else:
            lost, ended = "owner-dead", "poison"
        self._add(reason, lost, again)
        self._add(reason, ended, result.dead)
        self._add(reason, "uncancelled", result.cancelled)
        for end, number in result.ends.items():
            self.ended[end] += number
        self.counts["buried"] += result.workers_removed

    def add_forgotten(self) -> None:
        """Count a claim that never reached this worker, which alone can detect that."""
        self._add("owner", "forgotten", 1)

    def _add(self, reason: str, orphan: str, number: int) -> None:
        if number > 0:
            self.reclaimed[reason, orphan] += number
