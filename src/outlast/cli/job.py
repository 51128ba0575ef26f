"""All about one job: `outlast job ID`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.blob import Blob
from ..model.job import Job
from ..model.lifecycle import State
from ..model.outcome import reason
from ..model.words import span
from ..ops import report
from ..ops.explain import explain
from ..ops.flow_report import Neighbour, neighbours
from ..ops.report import Attempt, Event, Step, Worker
from ..ops.statement import Op
from .failing import block, one_line
from .places import connected, json_option
from .show import ago, console, moment, plain, print_json, short, table

if TYPE_CHECKING:
    from ..client import Outlast


NAMED = 5  # jobs before it and after it


@dataclass(frozen=True, slots=True)
class File:
    """What is on file about a job, at one moment by the database's clock."""

    job: Job
    why: str
    now: float
    owner: Worker | None
    attempts: list[Attempt]
    events: list[Event]
    steps: list[Step]
    before: list[Neighbour]  # the first few, and one more if there are more
    after: list[Neighbour]


def on_file(id: str, confirm_dead: Callable[[Sequence[str]], list[str]]) -> Op[File]:
    job = yield from report.job(id)
    why = yield from explain(id, confirm_dead)
    now = yield from report.clock()
    workers = yield from report.cards()
    attempts, events = yield from report.history(id)
    steps = yield from report.steps(id)
    before, after = yield from neighbours(id, NAMED + 1)
    owner = next((worker for worker in workers if worker.id == job.worker), None)
    return File(job, why, now, owner, attempts, events, steps, before, after)


@click.command(epilog="Example: outlast job 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("id")
@json_option
@connected
def job(ol: Outlast, id: str, as_json: bool) -> None:
    """Show all that is known of a job, and say why it is not running."""
    from ..connected import job_id

    file = ol.store.run(on_file, job_id(id), ol.store.confirm_dead)
    if as_json:
        print_json(as_facts(file))
    else:
        print_file(file)


def as_facts(file: File) -> dict[str, Any]:
    """The job as everywhere else, and beside its own facts what only this command gathers."""
    return {
        **file.job.as_json(),
        "why": file.why,
        "owner": _owner(file),
        "attempts": plain(file.attempts),
        "steps": plain(file.steps),
        "events": plain(file.events),
        "prerequisites": plain(file.before[:NAMED]),
        "followers": plain(file.after[:NAMED]),
    }


def _owner(file: File) -> dict[str, Any] | None:
    """Whose hands a running job is in."""
    job, worker = file.job, file.owner
    if job.state is not State.RUNNING:
        return None
    left = job.lease_until.timestamp() - file.now if job.lease_until else 0.0
    return {
        "worker": job.worker,
        "host": worker and worker.host,
        "pid": worker and worker.pid,
        "claimed_at": plain(job.started_at),
        "heartbeat_at": worker and plain(worker.seen_at),
        "lease_until": plain(job.lease_until),
        "lease_expired": left <= 0,
    }


def print_file(file: File) -> None:
    for name, value in _lines(file):
        if value is not None:
            click.echo(f"{name:<10}  {one_line(str(value))}")
    if file.attempts:
        click.echo("\nAttempts that did not succeed at once:")
        columns = ["attempt#", "outcome", "worker", "started", "ended", "reason"]
        rows = [
            [a.attempt, a.outcome, a.worker, a.started_at, a.finished_at,
             short(reason(a.error)) if a.error else None]
            for a in file.attempts
        ]  # fmt: skip
        console().print(table(columns, rows))
    if file.steps:
        click.echo("\nSteps whose results are kept:")
        kept = [[s.name, s.at, s.attempt] for s in file.steps]
        console().print(table(["step", "kept", "attempt#"], kept))
    if file.events:
        click.echo("\nEvents:")
        rows = [[e.at, e.attempt, e.kind, _in_short(e.data)] for e in file.events]
        console().print(table(["at", "attempt#", "what", "data"], rows))
    if isinstance(file.job.error, dict) and file.job.error.get("traceback"):
        click.echo(f"\n{block(str(file.job.error['traceback']))}")
    click.echo(f"\n{one_line(file.why)}")


def _lines(file: File) -> list[tuple[str, Any]]:
    job = file.job
    lines: list[tuple[str, Any]] = [
        ("job", job.id),
        ("task", job.task),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("tenant", job.tenant),
        ("key", job.key),
        ("state", _state(file)),
        ("unreadable", job.unreadable),
        ("attempt", f"{job.attempt}; {job.failures} of {job.max_attempts} failures,"
                    f" {job.crashes} of {job.max_crashes} lost workers"),
        ("arguments", _told(job.args)),
        ("result", None if job.result is None else _told(job.result)),
        ("error", reason(job.error) if job.error else None),
        ("created", moment(job.created_at)),
        ("run at", moment(job.run_at)),
        ("started", job.started_at and moment(job.started_at)),
        ("finished", job.finished_at and moment(job.finished_at)),
        ("expires", job.expires_at and moment(job.expires_at)),
        ("timeout", job.timeout and span(job.timeout)),
        ("fence", job.fence),
        ("trace", job.trace),
        ("flow", job.flow and f"{job.flow} (drawn by `outlast flow {job.flow}`)"),
    ]  # fmt: skip
    return [
        *lines,
        *_neighbour_lines("after", file.before),
        *_neighbour_lines("before", file.after),
        *_owner_lines(file),
    ]


def _neighbour_lines(name: str, jobs: Sequence[Neighbour]) -> list[tuple[str, Any]]:
    lines = [(name, f"{job.task} {job.id} ({job.state})") for job in jobs[:NAMED]]
    return [*lines, (name, "… and more")] if len(jobs) > NAMED else lines


def _state(file: File) -> str:
    job = file.job
    if job.state is not State.RUNNING or job.lease_until is None:
        return str(job.state)
    left = job.lease_until.timestamp() - file.now
    lease = f"lease good for {span(left)}" if left > 0 else f"lease expired {span(-left)} ago"
    return f"{job.state} ({lease}{', asked to stop' if job.cancelling else ''})"


def _owner_lines(file: File) -> list[tuple[str, Any]]:
    job, worker = file.job, file.owner
    if job.worker is None:
        return []
    if job.state is not State.RUNNING:
        return [("worker", f"{job.worker} (was the last)")]
    if worker is None:
        return [("worker", f"{job.worker} (no longer listed)")]
    return [
        ("worker", worker.id),
        ("host", worker.host),
        ("pid", worker.pid),
        ("claimed", job.started_at and moment(job.started_at)),
        ("heartbeat", ago(worker.silent_for)),
        ("lease", job.lease_until and f"until {moment(job.lease_until)}"),
    ]


def _in_short(data: Any) -> str:
    """An event's data as `name=value`, or whatever it is."""
    if not isinstance(data, dict):
        return short(_json(data))
    said = {name: value for name, value in data.items() if value not in (None, "")}
    return short(", ".join(f"{name}={_json(value).strip(chr(34))}" for name, value in said.items()))


def _told(value: Any) -> str:
    if isinstance(value, Blob):
        return f"{value.size:,} bytes, kept by reference (SHA-256 {value.sha256})"
    return short(_json(value), 2000)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
