"""Durable waits and signals of a job, for people: what it waits for, and how it waited."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..model.humanize import format_duration
from ..model.job import Job
from ..model.lifecycle import State
from ..model.timestamps import to_datetime
from ..model.wait import WaitKind, describe_subjects, describe_wait
from .operation import Op, Rows, Statement
from .signals import chosen_key

MAX_SIGNALS_SHOWN = 100
MAX_WAITS_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """A durable wait of a job."""

    name: str
    kind: str
    subjects: tuple[str, ...]  # names of signals, or the id of a job or flow
    since: datetime
    until: datetime | None  # the end of a sleep, or when it times out
    ended_at: datetime | None
    outcome: str | None  # signal, timed-out or ended; None: it continues, or is a sleep
    source: str | None  # the name of the signal, or the final state of the job

    def as_json(self) -> dict[str, object]:
        """The job's current wait: what for, since when, and until when."""
        return {
            "name": self.name,
            "kind": self.kind,
            "for": list(self.subjects),
            "since": self.since.isoformat(),
            "until": self.until and self.until.isoformat(),
        }

    def summary(self, now: float) -> str:
        """`signal approval since 2.0 d`"""
        spent = format_duration(now - self.since.timestamp())
        return f"{describe_subjects(self.kind, self.subjects)} since {spent}"

    def describe(self, now: float) -> str:
        """`waited 2.0 d for approval`"""
        return describe_wait(self.kind, self.subjects, self.spent(now), self.outcome)

    def spent(self, now: float) -> float:
        """Seconds that it has lasted so far."""
        ended = self.ended_at or (self.until if self.kind == WaitKind.SLEEP else None)
        end = now if ended is None else min(now, ended.timestamp())
        return end - self.since.timestamp()


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """A signal of a job, without its value."""

    seq: int
    name: str
    key: str | None
    sent_by: str | None
    at: datetime
    taken_by: str | None  # the wait


def waits(id: str, limit: int = MAX_WAITS_SHOWN) -> Op[list[WaitRecord]]:
    """The last durable waits of a job, in the order in which they began."""
    rows: Rows = yield Statement("waits", {"job": id, "limit": limit})
    return [_wait(*row) for row in reversed(rows)]


def signals(id: str) -> Op[list[SignalRecord]]:
    """The latest signals of a job, in the order of arrival: a wait takes the earlier ones first."""
    rows: Rows = yield Statement("signals", {"id": id, "limit": MAX_SIGNALS_SHOWN})
    return [
        SignalRecord(seq, name, chosen_key(key), by, to_datetime(at), taken_by)
        for seq, name, key, by, at, taken_by in reversed(rows)
    ]


def current_wait(job: Job) -> Op[WaitRecord | None]:
    """The wait of a job's handler; None if the job does not wait, or for prerequisites."""
    begun = job.state in (State.WAITING, State.SCHEDULED) and job.fence > 0
    if not begun or job.waits_for:
        return None
    rows: Rows = yield Statement("current_wait", {"id": job.id})
    return _wait(*rows[0]) if rows else None


def current_waits(jobs: Sequence[Job]) -> Op[dict[str, WaitRecord]]:
    """The waits of those jobs whose handlers wait, by job id."""
    parked = (State.WAITING, State.SCHEDULED)
    begun = [job.id for job in jobs if job.state in parked and job.fence > 0]
    if not begun:
        return {}
    rows: Rows = yield Statement("current_waits", {"ids": json.dumps(sorted(begun))})
    return {id: _wait(*columns) for id, *columns in rows}


def wait_forms(id: str) -> Op[dict[str, Mapping[str, object]]]:
    """The JSON schemas of the typed signals that a job waits for, by name."""
    rows: Rows = yield Statement("wait_form", {"id": id})
    return json.loads(rows[0][0]) if rows else {}


def _wait(name: str, kind: str, subjects: str, *rest: Any) -> WaitRecord:
    since, until, ended_at = (to_datetime(moment) for moment in rest[:3])
    return WaitRecord(name, kind, tuple(json.loads(subjects)), since, until, ended_at, *rest[3:])


def explain_wait(wait: WaitRecord, job: str, now: float, no_worker: str) -> str:
    """Why a job whose handler waits is not running."""
    since = f"since {_clock(wait.since)} ({format_duration(now - wait.since.timestamp())})"
    left = 0.0 if wait.until is None else wait.until.timestamp() - now
    if wait.kind == WaitKind.SLEEP:
        due = f"in {format_duration(left)}" if left > 0 else "now, at the next poll of a worker"
        hint = no_worker if left <= 0 else ""
        return f"Its handler sleeps {since} and goes on at {_clock(wait.until)}: {due}.{hint}"
    late = "without a time-out"
    if wait.until is not None:
        when = f"in {format_duration(left)}" if left > 0 else f"any moment now{no_worker}"
        late = f"times out at {_clock(wait.until)}, {when}"
    hint = ""
    if wait.kind == WaitKind.SIGNAL:
        hint = f" `outlast signal {job} {wait.subjects[0]} JSON` sends one."
    subject = describe_subjects(wait.kind, wait.subjects)
    return f"Its handler is waiting for {subject} {since}, {late}.{hint}"


def _clock(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(" ", "seconds")
