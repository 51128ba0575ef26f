"""Details of one job: `outlast job ID`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.blob import Blob
from ..model.humanize import format_duration
from ..model.job import Job
from ..model.lifecycle import State
from ..model.outcome import reason
from ..model.schedule import origin_of_key
from ..model.signal_link import LinkRecord
from ..model.ticks import as_key
from ..model.timestamps import is_finite
from ..ops import report
from ..ops.explain import explain
from ..ops.flow_report import Neighbour, neighbours
from ..ops.operation import Op
from ..ops.report import Attempt, Event, Step, WorkerInfo
from ..ops.signal_links import links
from ..ops.wait_report import SignalRecord, WaitRecord, signals, waits
from .database_options import json_option, with_client
from .errors import one_line, quoted_block
from .output import ago, console, local_time, print_json, shorten, table, to_json

if TYPE_CHECKING:
    from ..client.client import Outlast


BAR_WIDTH = 20  # characters of a progress bar
MAX_NEIGHBOURS = 5  # prerequisites, and followers


@dataclass(frozen=True, slots=True)
class JobDetails:
    """The stored facts about a job, at one time by the database's clock."""

    job: Job
    why: str
    now: float
    owner: WorkerInfo | None
    attempts: list[Attempt]
    events: list[Event]
    steps: list[Step]
    waits: list[WaitRecord]
    signals: list[SignalRecord]
    links: list[LinkRecord]
    before: list[Neighbour]  # the first few, and one more if there are more
    after: list[Neighbour]


def read_details(id: str, confirm_dead: Callable[[Sequence[str]], list[str]]) -> Op[JobDetails]:
    job = yield from report.job(id)
    why = yield from explain(id, confirm_dead)
    now = yield from report.clock()
    workers = yield from report.worker_rows()
    attempts, events = yield from report.history(id)
    steps = yield from report.steps(id)
    waited = yield from waits(id)
    sent = yield from signals(id)
    made = yield from links(id)
    before, after = yield from neighbours(id, MAX_NEIGHBOURS + 1)
    owner = next((worker for worker in workers if worker.id == job.worker), None)
    return JobDetails(
        job, why, now, owner, attempts, events, steps, waited, sent, made, before, after
    )


@click.command(epilog="Example: outlast job 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("id")
@click.option("--follow", is_flag=True, help="Then print the output that it streams, to its end.")
@json_option
@with_client
def job(ol: Outlast, id: str, follow: bool, as_json: bool) -> None:
    """Show a job's details, and why it is not running."""
    from ..client.verb_arguments import job_id

    details = ol.store.run(read_details, job_id(id), ol.store.confirm_dead)
    if as_json:
        print_json(details_json(details))
    else:
        print_details(details)
    if follow:
        from .stream import follow_stream

        click.echo()
        follow_stream(ol, id, as_json=as_json)


def details_json(details: JobDetails) -> dict[str, object]:
    """The job's usual JSON, and the facts that only this command collects."""
    return {
        **details.job.as_json(),
        "why": details.why,
        "schedule": _origin_json(details.job.key),
        "owner": _owner_json(details),
        "attempts": to_json(details.attempts),
        "steps": to_json(details.steps),
        "waits": [to_json(wait) | {"text": wait.describe(details.now)} for wait in details.waits],
        "signals": to_json(details.signals),
        "links": [link.as_json() for link in details.links],
        "events": to_json(details.events),
        "prerequisites": to_json(details.before[:MAX_NEIGHBOURS]),
        "followers": to_json(details.after[:MAX_NEIGHBOURS]),
    }


def _owner_json(details: JobDetails) -> dict[str, object] | None:
    """The owner of a running job, and its lease."""
    job, worker = details.job, details.owner
    if job.state is not State.RUNNING:
        return None
    left = job.lease_until.timestamp() - details.now if job.lease_until else 0.0
    return {
        "worker": job.worker,
        "host": worker and worker.host,
        "pid": worker and worker.pid,
        "claimed_at": to_json(job.started_at),
        "heartbeat_at": worker and to_json(worker.seen_at),
        "lease_until": to_json(job.lease_until),
        "lease_expired": left <= 0,
    }


def print_details(details: JobDetails) -> None:
    for name, value in _lines(details):
        if value is not None:
            click.echo(f"{name:<10}  {one_line(str(value))}")
    if details.attempts:
        click.echo("\nUnsuccessful attempts:")
        columns = ["attempt#", "outcome", "worker", "started", "ended", "reason"]
        rows = [
            [a.attempt, a.outcome, a.worker, a.started_at, a.finished_at,
             shorten(reason(a.error)) if a.error else None]
            for a in details.attempts
        ]  # fmt: skip
        console().print(table(columns, rows))
    if details.steps:
        click.echo("\nSteps with stored results:")
        step_rows = [[s.name, s.at, s.attempt] for s in details.steps]
        console().print(table(["step", "stored", "attempt#"], step_rows))
    if details.waits:
        click.echo("\nWaits:")
        waited = [
            [w.name, w.since, w.ended_at or w.until, w.describe(details.now)] for w in details.waits
        ]
        console().print(table(["wait", "since", "until", "what"], waited))
    if details.signals:
        click.echo("\nSignals:")
        sent = [[s.at, s.name, s.key, s.sent_by, s.taken_by] for s in details.signals]
        console().print(table(["at", "signal", "key", "sent by", "taken by"], sent))
    if details.links:
        click.echo("\nLinks:")
        made = [[k.id, k.name, str(k.state), k.expires_at, k.created_by] for k in details.links]
        console().print(table(["link", "signal", "state", "expires", "made by"], made))
    if events := without_older_progress(details.events):
        click.echo("\nEvents:")
        rows = [[e.at, e.attempt, e.kind, _event_data_text(e.data)] for e in events]
        console().print(table(["at", "attempt#", "event", "data"], rows))
    if isinstance(details.job.error, dict) and details.job.error.get("traceback"):
        click.echo(f"\n{quoted_block(str(details.job.error['traceback']))}")
    click.echo(f"\n{one_line(details.why)}")


def _lines(details: JobDetails) -> list[tuple[str, object]]:
    job = details.job
    lines: list[tuple[str, object]] = [
        ("job", job.id),
        ("task", job.task),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("lane", job.lane),
        ("tenant", job.tenant),
        ("key", job.key),
        ("schedule", _origin_text(job.key)),
        ("state", _state(details)),
        ("progress", progress_line(details.events)),
        ("unreadable", job.unreadable),
        ("attempt", f"{job.attempt}; {job.failures} of {job.max_attempts} failures,"
                    f" {job.crashes} of {job.max_crashes} worker crashes"),
        ("arguments", _value_text(job.args)),
        ("result", None if job.result is None else _value_text(job.result)),
        ("error", reason(job.error) if job.error else None),
        ("created", local_time(job.created_at)),
        ("run at", local_time(job.run_at)),
        ("started", job.started_at and local_time(job.started_at)),
        ("finished", job.finished_at and local_time(job.finished_at)),
        ("expires", job.expires_at and local_time(job.expires_at)),
        ("timeout", job.timeout and format_duration(job.timeout)),
        ("fence", job.fence),
        ("trace", job.trace),
        ("flow", job.flow and f"{job.flow} (see `outlast flow {job.flow}`)"),
    ]  # fmt: skip
    return [
        *lines,
        *_neighbour_lines("after", details.before),
        *_neighbour_lines("before", details.after),
        *_owner_lines(details),
    ]


def without_older_progress(events: Sequence[Event]) -> list[Event]:
    """All events without outdated progress, of which there may be hundreds."""
    latest = next((event for event in reversed(events) if event.kind == "progress"), None)
    return [event for event in events if event.kind != "progress" or event is latest]


def progress_line(events: Sequence[Event]) -> str | None:
    """The latest progress as one line with a bar; `--json` lists every step of it."""
    reports = [
        event for event in events if event.kind == "progress" and isinstance(event.data, dict)
    ]
    if not reports:
        return None
    done, total, note = (reports[-1].data.get(name) for name in ("done", "total", "note"))
    parts = [f"{_json_text(done)} of {_json_text(total)}" if total else _json_text(done)]
    if is_finite(done) and is_finite(total) and total > 0:
        share = min(1.0, max(0.0, done / total))
        filled = int(share * BAR_WIDTH)
        parts.insert(0, "█" * filled + "░" * (BAR_WIDTH - filled) + f" {share:.0%}")
    if note:
        parts.append(shorten(str(note)))
    age = f"attempt {reports[-1].attempt}, {local_time(reports[-1].at)}"
    return f"{', '.join(parts)} ({age})"


def _origin_text(key: str | None) -> str | None:
    """The schedule that fired a job, and the tick."""
    if (origin := origin_of_key(key)) is None:
        return None
    how = "started by an operator at" if origin.manual else "tick"
    return f"{origin.schedule}, {how} {as_key(origin.tick.timestamp())}"


def _origin_json(key: str | None) -> dict[str, object] | None:
    origin = origin_of_key(key)
    return None if origin is None else origin._asdict() | {"tick": to_json(origin.tick)}


def _neighbour_lines(name: str, jobs: Sequence[Neighbour]) -> list[tuple[str, Any]]:
    lines = [(name, f"{job.task} {job.id} ({job.state})") for job in jobs[:MAX_NEIGHBOURS]]
    return [*lines, (name, "… and more")] if len(jobs) > MAX_NEIGHBOURS else lines


def _state(details: JobDetails) -> str:
    job = details.job
    if job.state is not State.RUNNING or job.lease_until is None:
        return str(job.state)
    left = job.lease_until.timestamp() - details.now
    lease = (
        f"lease valid for {format_duration(left)}"
        if left > 0
        else f"lease expired {format_duration(-left)} ago"
    )
    return f"{job.state} ({lease}{', asked to stop' if job.cancelling else ''})"


def _owner_lines(details: JobDetails) -> list[tuple[str, object]]:
    job, worker = details.job, details.owner
    if job.worker is None:
        return []
    if job.state is not State.RUNNING:
        return [("worker", f"{job.worker} (last owner)")]
    if worker is None:
        return [("worker", f"{job.worker} (no longer listed)")]
    return [
        ("worker", worker.id),
        ("host", worker.host),
        ("pid", worker.pid),
        ("claimed", job.started_at and local_time(job.started_at)),
        ("heartbeat", ago(worker.silent_for)),
        ("lease", job.lease_until and f"until {local_time(job.lease_until)}"),
    ]


def _event_data_text(data: object) -> str:
    """An event's data as `name=value` pairs, or as JSON if it is not an object."""
    if not isinstance(data, dict):
        return shorten(_json_text(data))
    fields = {name: value for name, value in data.items() if value not in (None, "")}
    return shorten(
        ", ".join(f"{name}={_json_text(value).strip(chr(34))}" for name, value in fields.items())
    )


def _value_text(value: object) -> str:
    if isinstance(value, Blob):
        return f"{value.size:,} bytes, stored by reference (SHA-256 {value.sha256})"
    return shorten(_json_text(value), 2000)


def _json_text(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
