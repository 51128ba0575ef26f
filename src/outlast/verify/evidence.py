"""Everything that is known when a campaign is over, as values: what the checker decides from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..ops.statement import Op, Rows, Statement, Together
from ..store import Store
from .ledger import Entry


@dataclass(frozen=True, slots=True)
class JobRow:
    id: str
    state: str
    attempt: int
    failures: int
    crashes: int
    fence: int
    worker: str | None
    lease_left: float | None  # seconds; None: no lease
    due_in: float  # seconds until run_at; negative: past
    result: Any
    max_attempts: int
    max_crashes: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    job: str
    fence: int
    attempt: int
    outcome: str


@dataclass(slots=True)
class Evidence:
    """`promised` holds the ids whose enqueue was acknowledged, `refused` those that must not
    exist (their transaction was rolled back)."""

    rows: dict[str, JobRow]
    attempts: dict[str, list[AttemptRow]]
    ledger: dict[str, list[Entry]]
    promised: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    orphans: list[str] = field(default_factory=list)  # side rows whose job is gone


def dump() -> Op[tuple[Rows, Rows, Rows]]:
    rows, attempts, orphans = yield Together(
        [Statement("dump_jobs"), Statement("dump_attempts"), Statement("dump_orphans")]
    )
    return rows, attempts, orphans


def collect(store: Store, ledger: Iterable[Entry], promised: Iterable[str] = ()) -> Evidence:
    """Read the tables and the ledger as they stand."""
    from ..model.job import lenient_json

    rows, attempts, orphans = store.run(dump)
    jobs = [JobRow(*(*row[:9], lenient_json(row[9]), *row[10:])) for row in rows]
    by_job: dict[str, list[AttemptRow]] = defaultdict(list)
    for attempt in (AttemptRow(*row) for row in attempts):
        by_job[attempt.job].append(attempt)
    told: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger:
        told[entry.job].append(entry)
    return Evidence(
        rows={job.id: job for job in jobs},
        attempts=by_job,
        ledger=told,
        promised=set(promised),
        orphans=[f"{kind} of {job}" for kind, job in orphans],
    )
