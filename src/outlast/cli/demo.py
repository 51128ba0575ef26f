"""Killing workers while every job finishes: `outlast demo`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import InvalidSetting
from .database_options import given_database, json_option
from .output import print_json
from .signals import unwind_on_signals

if TYPE_CHECKING:
    from rich.console import Console

    from ..verify.workspace import Workspace


@click.command(
    epilog="""
    \b
    Examples: outlast demo
              outlast demo --jobs 10000 --workers 8
              outlast demo --serve
              outlast demo --url postgresql://localhost/postgres
    """
)
@click.option(
    "--jobs", type=click.IntRange(1, 1_000_000), default=3000, show_default=True,
    help="Jobs to enqueue, 5 to 60 ms long each; some of them fail once, some enqueue another.",
)  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(2, 100), default=4, show_default=True,
    help="Worker processes; one is killed and replaced every second.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(1.0), default=300.0, show_default=True,
    help="Jobs that are not done after this time count as stuck.",
)  # fmt: skip
@click.option(
    "--url", metavar="URL",
    help="postgresql://…, for a temporary schema; default: a temporary SQLite file.",
)  # fmt: skip
@click.option(
    "--serve", is_flag=True,
    help="Serve the dashboard meanwhile: watch the page of recoveries fill. Ctrl-C ends it.",
)  # fmt: skip
@json_option
@click.pass_context
def demo(ctx: click.Context, /, serve: bool, as_json: bool, **options: Any) -> None:
    """Show that no job is lost when workers are killed.

    Enqueues jobs, runs worker processes, sends SIGKILL to one of them every second, and counts the
    outcomes. Needs no setup, and leaves nothing behind. Exit code 1: jobs were lost or stuck.
    """
    from rich.console import Console

    from ..demo.output import notes, progress_display, table
    from ..demo.run import DemoPlan, run_demo

    plan = DemoPlan(options["jobs"], options["workers"], options["seconds"])
    url, _ = given_database(ctx)
    if url is not None and url.startswith("sqlite"):
        raise InvalidSetting(
            field="url", reason="must be of PostgreSQL: on SQLite the demo creates its own file"
        )
    console = Console(quiet=as_json, highlight=False)
    console.print(
        f"{plan.jobs:,} jobs, {plan.workers} worker processes on"
        f" {'PostgreSQL' if url else 'SQLite'}, one of them killed every second"
    )
    unwind_on_signals()  # which ends the workers and removes the schema or file
    if serve:
        from .serve import require_serve_extra

        require_serve_extra()
    with ExitStack() as held:
        with progress_display(console) as watch:
            beside = partial(_dashboard, console) if serve else nullcontext
            running = run_demo(plan, url, watch, beside)
            verdict, worker_log = held.enter_context(running)
        if as_json:
            print_json(verdict.as_json())
        console.print()
        console.print(table(verdict))
        console.print(f"\n{notes(verdict)}", soft_wrap=True)
        if serve and console.is_terminal and not as_json:
            console.print("\nThe dashboard is served until you press Ctrl-C.")
            with suppress(KeyboardInterrupt):
                signal.pause()
    if not verdict.ok:
        wrong = "a guarantee was broken" if verdict.broken else "jobs are not done: see --seconds"
        click.echo(f"\noutlast: {wrong}; last log lines of the workers:\n{worker_log}", err=True)
        sys.exit(1)


@contextmanager
def _dashboard(console: Console, workspace: Workspace) -> Iterator[None]:
    from ..demo.dashboard import open_browser, served

    with served(workspace) as address:
        console.print(f"Dashboard: {address}", soft_wrap=True)
        if console.is_terminal:
            open_browser(address)
        yield
