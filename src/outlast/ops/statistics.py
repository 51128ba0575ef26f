"""Statistics of the past, counted from the rows in spans of ten seconds.

Jobs are not counted while they run. The ends of a span are read once it is over, through the index
of ends, and again a minute later, to include late commits. A count replaces the previous one, so an
interrupted or repeated count does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from ..model.histogram import DurationHistogram
from ..model.job import lenient_json
from ..model.lifecycle import Outcome, State
from .access import ALL_JOBS, Access
from .operation import BEGIN, Op, Pipeline, Row, Rows, Statement

SPAN_S = 10  # seconds
LONG_SPAN_S = 600  # seconds; the resolution after a day
MAX_KEYS_PER_SPAN = 200  # tenants and queues with their own rows in one span; others are merged
OTHERS = ("", "")  # the key of merged ones

Whose = tuple[str, str]  # tenant, queue


@dataclass(slots=True)
class StatisticsRow:
    """The jobs of one tenant in one queue and span."""

    at: int
    tenant: str
    queue: str
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    failed: int = 0  # attempts
    crashed: int = 0  # attempts
    waits: DurationHistogram = field(default_factory=DurationHistogram)
    runs: DurationHistogram = field(default_factory=DurationHistogram)
    depths: dict[str, int] | None = None

    @property
    def key(self) -> Whose:
        return self.tenant, self.queue

    @property
    def finished(self) -> int:
        return self.succeeded + self.dead + self.cancelled

    @property
    def weight(self) -> int:
        return self.finished + self.failed + self.crashed + sum((self.depths or {}).values())

    def add(self, other: StatisticsRow) -> None:
        """Merge the row of another tenant or queue in the same span."""
        self._count(other)
        if other.depths is not None:
            there = self.depths or {}
            self.depths = there | {
                state: there.get(state, 0) + number for state, number in other.depths.items()
            }

    def follow(self, other: StatisticsRow) -> None:
        """Merge the row of the same key in another span; depths keep their maximum, so that peaks
        stay visible."""
        self._count(other)
        if other.depths is not None:
            there = self.depths or {}
            self.depths = there | {
                state: max(there.get(state, 0), number) for state, number in other.depths.items()
            }

    def _count(self, other: StatisticsRow) -> None:
        self.succeeded += other.succeeded
        self.dead += other.dead
        self.cancelled += other.cancelled
        self.failed += other.failed
        self.crashed += other.crashed
        self.waits.add(other.waits)
        self.runs.add(other.runs)

    def row(self, span: int) -> dict[str, object]:
        names = ("at", "tenant", "queue", "succeeded", "dead", "cancelled", "failed", "crashed")
        return {
            **{name: getattr(self, name) for name in names},
            "span": span,
            "waits": json.dumps(self.waits.stored),
            "runs": json.dumps(self.runs.stored),
            "depths": None if self.depths is None else json.dumps(self.depths),
        }


Depths = dict[Whose, dict[str, int]]


def newest_span() -> Op[tuple[int | None, float]]:
    """The start of the last counted span, and the current time."""
    rows: Rows = yield Statement("newest_statistic", {"span": SPAN_S})
    newest, now = rows[0]
    return None if newest is None else int(newest), float(now)


def depths() -> Op[Depths]:
    """The current depths. This reads all unfinished jobs: call it rarely."""
    rows: Rows = yield Statement("live_depths")
    found: Depths = {}
    for tenant, queue, state, number in rows:
        found.setdefault((tenant, queue), {})[state] = int(number)
    return found


def count(at: int, there: Depths | None = None) -> Op[int]:
    """Count and store the span that starts at `at`."""
    given = {"low": at, "high": at + SPAN_S}
    ended, attempts, known = yield Pipeline(
        [
            Statement("ended_between", given),
            Statement("attempts_between", given),
            Statement("statistics", {"span": SPAN_S, **given, **ALL_JOBS.params}),
        ]
    )
    found = bounded(counted(at, ended, attempts, there), separate_keys(map(_line, known)))
    if not found and known:
        return 0
    if not found:  # an empty row records that the span was counted
        found = [StatisticsRow(at, *OTHERS, depths=None if there is None else {})]
    yield Statement("keep_statistics", rows=[line.row(SPAN_S) for line in found])
    return sum(line.finished for line in found)


def counted(at: int, ended: Rows, attempts: Rows, there: Depths | None) -> list[StatisticsRow]:
    """Pure: the statistics of a span, one row for each tenant and queue."""
    lines: dict[Whose, StatisticsRow] = {}

    def line(tenant: str, queue: str) -> StatisticsRow:
        return lines.setdefault((tenant, queue), StatisticsRow(at, tenant, queue))

    for tenant, queue, state, wait_class, run_class, number, waited, ran in ended:
        one = line(tenant, queue)
        setattr(one, state, getattr(one, state) + int(number))
        if state != State.CANCELLED and wait_class is not None:
            one.waits.record(int(wait_class), int(number), max(0.0, float(waited)))
        if state != State.CANCELLED and run_class is not None:
            one.runs.record(int(run_class), int(number), max(0.0, float(ran)))
    for tenant, queue, outcome, number in attempts:
        one = line(tenant, queue)
        if outcome in {Outcome.CRASHED, Outcome.STALLED}:
            one.crashed += int(number)
        elif outcome in {Outcome.FAILED, Outcome.TIMED_OUT, Outcome.PERMANENT}:
            one.failed += int(number)
    for (tenant, queue), states in (there or {}).items():
        line(tenant, queue).depths = states
    if there is not None:
        for one in lines.values():
            one.depths = one.depths or {}
    return list(lines.values())


def bounded(
    lines: Iterable[StatisticsRow],
    separate: Set[Whose] = frozenset(),
    limit: int = MAX_KEYS_PER_SPAN,
) -> list[StatisticsRow]:
    """The busiest keys on their own, all others merged. Keys that had their own row before keep it,
    and once the limit is reached no key joins them; otherwise some jobs would be counted in
    both."""
    ranked = sorted(
        lines,
        key=lambda line: (line.key == OTHERS, line.key not in separate, -line.weight, line.key),
    )
    named = {line.key for line in ranked} - {OTHERS}
    room = min(limit - len(separate - named), len(named))
    kept, rest = ranked[:room], ranked[room:]
    if rest:
        others = StatisticsRow(rest[0].at, *OTHERS)
        for line in rest:
            others.add(line)
        kept.append(others)
    return kept


def fold(at: int) -> Op[int]:
    """Store a long span, merged from its short ones."""
    yield BEGIN
    short = yield from read_statistics(SPAN_S, at, at + LONG_SPAN_S)
    known = yield from read_statistics(LONG_SPAN_S, at, at + LONG_SPAN_S)
    made: dict[Whose, StatisticsRow] = {}
    for line in short:
        made.setdefault(line.key, StatisticsRow(at, line.tenant, line.queue)).follow(line)
    if made:
        rows = [line.row(LONG_SPAN_S) for line in bounded(made.values(), separate_keys(known))]
        yield Statement("keep_statistics", rows=rows)
    return len(made)


def separate_keys(known: Iterable[StatisticsRow]) -> set[Whose]:
    return {line.key for line in known} - {OTHERS}


def read_statistics(
    span: int, low: int, high: int, reach: Access = ALL_JOBS
) -> Op[list[StatisticsRow]]:
    """The statistics of a period."""
    given = {"span": span, "low": low, "high": high, **reach.params}
    rows: Rows = yield Statement("statistics", given)
    return [_line(row) for row in rows]


def prune_statistics(short_before: int, long_before: int) -> Op[None]:
    yield Pipeline(
        [
            Statement("prune_statistics", {"span": SPAN_S, "low": short_before}),
            Statement("prune_statistics", {"span": LONG_SPAN_S, "low": long_before}),
        ]
    )


def _line(row: Row) -> StatisticsRow:
    at, tenant, queue, succeeded, dead, cancelled, failed, crashed, waits, runs, there = row
    found = lenient_json(there)
    return StatisticsRow(
        int(at),
        tenant,
        queue,
        int(succeeded),
        int(dead),
        int(cancelled),
        int(failed),
        int(crashed),
        DurationHistogram.read(lenient_json(waits)),
        DurationHistogram.read(lenient_json(runs)),
        found if isinstance(found, dict) else None,
    )
