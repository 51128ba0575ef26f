"""Evidence for the checker, as values: the ledger and a dump of the tables after a campaign."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...model.job import lenient_json
from ...model.lifecycle import State
from ...ops.operation import Op, Pipeline, Row, Rows, Statement
from ...store import Store
from ..ledger import LedgerEntry


@dataclass(frozen=True, slots=True)
class JobRow:
    """A row of the table of jobs; the fields are in the order of the columns of `dump_jobs`."""

    id: str
    state: str
    attempt: int
    failures: int
    crashes: int
    fence: int
    worker: str | None
    lease_left: float | None  # seconds; None: no lease
    due_in: float  # seconds until run_at; negative: past
    result: object
    max_attempts: int
    max_crashes: int
    queue: str
    args: object
    cancelling: bool = False
    error: object = None
    flow: str | None = None
    team: str | None = None
    needs: str = "succeeded"
    waits_for: int = 0
    quorum: int | None = None
    unlinked: bool = False  # prerequisites not counted yet

    @property
    def failed_by_prerequisite(self) -> bool:
        """Whether it ended because of a prerequisite."""
        error_type = self.error.get("type") if isinstance(self.error, dict) else None
        return error_type == "PrerequisiteFailed" and self.state in (State.DEAD, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A row of the table of flows; the fields are in the order of the columns of `dump_flows`."""

    id: str
    part_of: str | None = None  # the flow of a group
    fail_after: int | None = None
    failed: int = 0
    reason: str | None = None
    cancelled: bool = False
    settled: bool = False


@dataclass(frozen=True, slots=True)
class AttemptRow:
    job: str
    fence: int
    attempt: int
    outcome: str


@dataclass(frozen=True, slots=True)
class EventRow:
    job: str | None
    attempt: int | None
    kind: str
    data: Any


@dataclass(frozen=True, slots=True)
class StepRow:
    fence: int
    result: object


@dataclass
class Evidence:
    """The tables, the ledger, and the rows that callers wrote beside their jobs (by queue)."""

    rows: dict[str, JobRow] = field(default_factory=dict)
    attempts: dict[str, list[AttemptRow]] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    steps: dict[tuple[str, str], StepRow] = field(default_factory=dict)  # by job and name
    ledger: list[LedgerEntry] = field(default_factory=list)
    business_rows: set[str] = field(default_factory=set)
    orphans: list[str] = field(default_factory=list)  # dependent rows whose job is gone
    before: dict[str, list[str]] = field(default_factory=dict)  # prerequisites of each follower
    flows: dict[str, FlowRow] = field(default_factory=dict)
    audited: dict[str, int] = field(default_factory=dict)  # found by audits, by name

    def entries(self, kind: str) -> Iterator[LedgerEntry]:
        return (entry for entry in self.ledger if entry.kind == kind)

    def ran(self) -> dict[str, list[int]]:
        """The claims under which each job was run, one entry per run."""
        fences: dict[str, list[int]] = defaultdict(list)
        for entry in self.entries("began"):
            fences[entry.subject].append(entry.fence)
        return fences

    def outages(self) -> set[str]:
        """Queues in which a circuit breaker was open."""
        opened = (event.data for event in self.events if event.kind == "breaker-opened")
        return {data["queue"] for data in opened if isinstance(data, dict)}

    def redriven(self) -> Counter[str]:
        """The number of redrives of each job."""
        return Counter(event.job for event in self.events if event.job and event.kind == "redrive")

    def cancels(self) -> dict[str, list[str]]:
        """The states in which cancels left each job, by the record of each cancel. The cancellation
        of a flow or group counts as a request for each of its jobs, and a job dropped by a full
        queue as cancelled."""
        states: dict[str, list[str]] = defaultdict(list)
        for row in self.rows.values():
            if self.was_cancelled(row):
                states[row.id].append("asked")
        for event in self.events:
            if event.job and event.kind == "cancel":
                data = event.data if isinstance(event.data, dict) else {}
                states[event.job].append(str(data.get("state")))
            elif event.job and event.kind == "drop":
                states[event.job].append(str(State.CANCELLED))
        return states

    def was_cancelled(self, row: JobRow) -> bool:
        """Whether the flow or group of a job was cancelled, even if it was reopened."""
        found = [self.flows[id] for id in (row.flow, row.team) if id in self.flows]
        return any(flow.cancelled for flow in found) or row.flow in self._cancelled_flows

    @cached_property
    def _cancelled_flows(self) -> set[str]:
        """Flows that were cancelled, by the record."""
        cancels = [event.data for event in self.events if event.kind == "cancel-flow"]
        return {str(data["flow"]) for data in cancels if isinstance(data, dict) and "flow" in data}

    def record(self, id: str, fence: int) -> AttemptRow | None:
        found = [record for record in self.attempts.get(id, ()) if record.fence == fence]
        return found[0] if found else None


def dump() -> Op[list[Rows]]:
    names = ("jobs", "attempts", "events", "steps", "orphans", "edges", "flows", "audited")
    rows: list[Rows] = yield Pipeline([Statement(f"outlast.verify:dump_{name}") for name in names])
    return rows


def collect(
    store: Store, ledger: Iterable[LedgerEntry], business_rows: Iterable[str] = ()
) -> Evidence:
    """Read the tables and the ledger."""
    jobs, attempts, events, steps, orphans, edges, flows, audited = store.run(dump)
    by_job: dict[str, list[AttemptRow]] = defaultdict(list)
    for attempt in (AttemptRow(*row) for row in attempts):
        by_job[attempt.job].append(attempt)
    before: dict[str, list[str]] = defaultdict(list)
    for job, follower in edges:
        before[follower].append(job)
    return Evidence(
        rows={row[0]: _job(row) for row in jobs},
        attempts=by_job,
        events=[EventRow(job, attempt, kind, lenient_json(data))
                for job, attempt, kind, data in events],
        steps={(job, name): StepRow(fence, lenient_json(result))
               for job, name, fence, result in steps},
        ledger=list(ledger),
        business_rows=set(business_rows),
        orphans=[f"{kind} of {job}" for kind, job in orphans],
        before=before,
        flows={row[0]: FlowRow(*row[:5], *map(bool, row[5:])) for row in flows},
        audited=dict(audited),
    )  # fmt: skip


def _job(row: Row) -> JobRow:
    facts = dict(zip(JobRow.__slots__, row, strict=True))
    for name in ("result", "args", "error"):
        facts[name] = lenient_json(facts[name])
    for name in ("cancelling", "unlinked"):
        facts[name] = bool(facts[name])
    return JobRow(**facts)
