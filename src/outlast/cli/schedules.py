"""Schedules: `outlast schedules`, and `outlast schedule NAME` with its actions."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ..model.humanize import pluralize
from ..model.schedule import MISSED, OVERLAP, ScheduleSpec
from .apps import find_app
from .database_options import json_option, with_client, with_database_options
from .default_group import DefaultGroup
from .errors import as_usage_errors, printable
from .output import local_time, print_json, print_table, to_json
from .parsing import parse_time
from .progress import ProgressLine

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..model.schedule_state import Schedule, ScheduleReport

PREVIEWED_RUNS = 10
COLUMNS = ["schedule", "when", "", "next", "last", "fired#", "missed#", "skipped#", "task"]


@click.group(cls=DefaultGroup, default="list", bare=True)
def schedules() -> None:
    """List schedules, or preview those of an app."""


@schedules.command("list", epilog="Examples: outlast schedules; outlast schedules list --limit 200")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of schedules.",
)
@click.option(
    "--after", metavar="NAME", help="Continue after this schedule, the last of the previous page."
)
@json_option
@with_client
def list_schedules(ol: Outlast, limit: int, after: str | None, as_json: bool) -> None:
    """List the schedules by name, with their next and last runs."""
    with as_usage_errors():
        page = ol._schedule_page(limit, after)
    if as_json:
        print_json([one.as_json() for one in page.schedules])
    else:
        print_table(COLUMNS, map(_row, page.schedules), none="No schedules.")
    if page.next is not None:
        shown = f"{len(page.schedules):,} of {pluralize(page.count, 'schedule')}"
        click.echo(printable(f"{shown}; continue with --after {quote(page.next)}"), err=True)


@schedules.command(epilog="Example: outlast schedules preview shop.tasks:ol")
@click.argument("app")
@json_option
@with_database_options
def preview(app: str, as_json: bool, url: str | None, schema: str | None) -> None:
    """Show the next runs of the schedules that APP (module:attr) declares, without a database."""
    with as_usage_errors():
        declared = find_app(app, url, schema).registry.schedules
    runs = {
        name: one.spec.runs(time.time(), PREVIEWED_RUNS) for name, one in sorted(declared.items())
    }
    if as_json:
        print_json(
            [
                {"name": name, "task": one.task, **one.spec.as_json(), "next_runs": runs[name]}
                for name, one in sorted(declared.items())
            ]
        )
        return
    if not declared:
        click.echo("This app declares no schedules.")
    for name, one in sorted(declared.items()):
        click.echo(printable(f"{name}: {one.spec}, task {one.task}"))
        for run in runs[name]:
            click.echo(f"  {_shown(run)}")


@click.group(cls=DefaultGroup, default="show")
def schedule() -> None:
    """Show a schedule (`outlast schedule NAME`), or change it."""


@schedule.command(epilog="Example: outlast schedule nightly, or outlast schedule show nightly")
@click.argument("name")
@json_option
@with_client
def show(ol: Outlast, name: str, as_json: bool) -> None:
    """Show the next ten runs of schedule NAME, its latest jobs, and recorded actions."""
    report = ol.schedule_report(name)
    if as_json:
        print_json(
            {
                **report.schedule.as_json(),
                "next_runs": report.next_runs,
                "history": report.history,
                "actions": report.actions,
            }
        )
    else:
        _print_report(report)


@schedule.command(epilog='Example: outlast schedule pause nightly --reason "year-end"')
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Shown with the schedule.")
@json_option
@with_client
def pause(ol: Outlast, name: str, reason: str, as_json: bool) -> None:
    """Stop firing schedule NAME. Survives restarts and deployments."""
    _print_changed(ol.pause_schedule(name, reason), as_json)


@schedule.command(epilog="Example: outlast schedule resume nightly")
@click.argument("name")
@json_option
@with_client
def resume(ol: Outlast, name: str, as_json: bool) -> None:
    """Resume schedule NAME with its next tick; ticks during the pause are dropped."""
    _print_changed(ol.resume_schedule(name), as_json)


@schedule.command(epilog="Example: outlast schedule run nightly")
@click.argument("name")
@json_option
@with_client
def run(ol: Outlast, name: str, as_json: bool) -> None:
    """Enqueue a job of schedule NAME now; its ticks stay as they are."""
    job = ol.run_schedule(name)
    if as_json:
        print_json(job)
    else:
        click.echo(f"{printable(name)}: job {job.id} is {job.state}.")


@schedule.command(epilog="Example: outlast schedule skip nightly -n 2")
@click.argument("name")
@click.option("--ticks", "-n", "number", type=click.IntRange(1), default=1, help="Number of ticks.")
@json_option
@with_client
def skip(ol: Outlast, name: str, number: int, as_json: bool) -> None:
    """Skip the next tick of schedule NAME, or the next N."""
    with as_usage_errors():
        changed = ol.skip_schedule(name, number)
    _print_changed(changed, as_json)


def _timing_options(command: Callable[..., object]) -> Callable[..., object]:
    for option in (
        click.option("--cron", metavar="EXPR", help="Cron expression, such as '30 2 * * *'."),
        click.option("--every", metavar="SPAN", help="Period instead of cron: 30s, 15m, 2h."),
        click.option("--tz", metavar="ZONE", help="Time zone of cron, such as Europe/Berlin."),
        click.option("--missed", type=click.Choice(MISSED), help="Policy for missed ticks."),
        click.option(
            "--overlap",
            type=click.Choice(OVERLAP),
            help="Policy while an earlier run is unfinished.",
        ),
        click.option("--jitter", metavar="SPAN", help="Start up to this much later."),
        click.option("--grace", metavar="SPAN", help="With missed=none: later ticks are missed."),
    ):
        command = option(command)
    return command


@schedule.command(epilog="Example: outlast schedule change nightly --cron '15 4 * * *'")
@click.argument("name")
@_timing_options
@json_option
@with_client
def change(ol: Outlast, name: str, as_json: bool, **options: Any) -> None:
    """Change schedule NAME at run time; overrides the declaration in code until it is reset."""
    given = {key: value for key, value in options.items() if value is not None}
    with as_usage_errors():
        changed = ol.change_schedule(name, **given)
    _print_changed(changed, as_json)


@schedule.command(epilog="Example: outlast schedule reset nightly")
@click.argument("name")
@json_option
@with_client
def reset(ol: Outlast, name: str, as_json: bool) -> None:
    """Discard run-time changes of schedule NAME: restore the declaration in code."""
    _print_changed(ol.reset_schedule(name), as_json)


@schedule.command(
    epilog="Example: outlast schedule backfill nightly"
    " --start 2026-01-01T00:00:00Z --end 2026-02-01T00:00:00Z"
)
@click.argument("name")
@click.option("--start", callback=parse_time, required=True, metavar="TIME", help="First moment.")
@click.option("--end", callback=parse_time, required=True, metavar="TIME", help="Exclusive end.")
@json_option
@with_client
def backfill(ol: Outlast, name: str, start: datetime, end: datetime, as_json: bool) -> None:
    """Enqueue the jobs of past ticks of schedule NAME, except for ticks that have a job."""
    with as_usage_errors(), ProgressLine("Enqueuing the jobs of past ticks"):
        made = ol.backfill_schedule(name, start, end)
    if as_json:
        print_json(list(made))
    else:
        click.echo(f"{printable(name)}: {pluralize(len(made), 'job')} enqueued.")


@schedule.command(epilog="Example: outlast schedule delete nightly")
@click.argument("name")
@json_option
@with_client
def delete(ol: Outlast, name: str, as_json: bool) -> None:
    """Remove schedule NAME; its jobs stay. If code declares it, it returns when a worker starts."""
    ol.delete_schedule(name)
    if as_json:
        print_json({"schedule": name, "deleted": True})
    else:
        click.echo(f"{printable(name)} is deleted.")


def _row(one: Schedule) -> list[object]:
    return [
        one.name, when(one), status(one), one.next_at, one.last_state, one.fired, one.missed_ticks,
        one.skipped, one.task,
    ]  # fmt: skip


def when(one: Schedule) -> str:
    return str(ScheduleSpec(cron=one.cron, every=one.every, tz=one.tz))


def status(one: Schedule) -> str:
    """The status of a schedule in a few words."""
    words = ["paused"] * one.paused + ["error"] * (one.error is not None)
    words += ["orphan"] * one.orphan + ["changed"] * bool(one.changes)
    return ", ".join(words)


def _shown(run: datetime) -> str:
    """A run in the schedule's own time zone, with its abbreviation: it shows daylight saving."""
    return run.strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _print_changed(one: Schedule, as_json: bool) -> None:
    if as_json:
        print_json(one.as_json())
        return
    state = status(one) or "active"
    following = "" if one.next_at is None else f"; next: {local_time(one.next_at)}"
    click.echo(printable(f"{one.name}: {when(one)}, {state}{following}."))


def _print_report(report: ScheduleReport) -> None:
    one = report.schedule
    origin = "code" if one.from_code else "run time"
    click.echo(printable(f"{one.name}: {when(one)}, task {one.task}, queue {one.queue}, {origin}"))
    click.echo(f"  missed={one.missed} overlap={one.overlap} jitter={one.jitter:g}s")
    for line in _remarks(one):
        click.echo(printable(f"  {line}"))
    click.echo(f"  fired {one.fired}, missed {one.missed_ticks}, skipped {one.skipped},"
               f" late {one.late}")  # fmt: skip
    click.echo("Next runs:" if report.next_runs else "No next runs.")
    for run in report.next_runs:
        click.echo(f"  {_shown(run)}")
    rows = ([job.id, job.state, job.created_at, job.finished_at] for job in report.history)
    print_table(["id", "state", "created", "finished"], rows, none="No jobs yet.")
    for action in report.actions:
        facts = {key: value for key, value in action.items() if key not in _KNOWN_FACTS}
        line = f"{action['action']} by {action['by']} {to_json(facts) or ''}"
        click.echo(printable(f"{local_time(action['at'])}  {line}".rstrip()))


_KNOWN_FACTS = ("action", "at", "by", "schedule", "request")


def _remarks(one: Schedule) -> list[str]:
    remarks = []
    if one.paused_at is not None:
        reason = f": {one.pause_reason}" if one.pause_reason else ""
        remarks.append(f"paused by {one.paused_by} at {local_time(one.paused_at)}{reason}")
    if one.error is not None:
        remarks.append(f"not fired because of an error: {one.error}")
    if one.orphan:
        remarks.append("orphan: no deployment has announced it for a week")
    if one.changes:
        remarks.append(f"changed at run time: {to_json(one.changes)}")
    if one.note is not None and one.noted_at is not None:
        remarks.append(f"{local_time(one.noted_at)}: {one.note}")
    return remarks
