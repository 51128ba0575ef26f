"""Kill workers and watch every job finish: `outlast demo`."""

from __future__ import annotations

import signal
import sys

import click

from ..model.errors import InvalidSetting
from .places import json_option, place
from .show import print_json


@click.command(
    epilog="""
    \b
    Examples: outlast demo
              outlast demo --jobs 10000 --workers 8
              outlast demo --url postgresql://localhost/postgres
    """
)
@click.option(
    "--jobs", type=click.IntRange(1, 1_000_000), default=3000, show_default=True,
    help="Jobs to enqueue, 5 to 60 ms long each; some of them fail once, some enqueue another.",
)  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(2, 100), default=4, show_default=True,
    help="Worker processes. One of them is killed every second, and replaced.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(1.0), default=300.0, show_default=True,
    help="What is not done after so long counts as stuck.",
)  # fmt: skip
@click.option(
    "--url", metavar="URL",
    help="postgresql://…, where a schema is made and dropped; else a SQLite file of its own.",
)  # fmt: skip
@json_option
@click.pass_context
def demo(
    ctx: click.Context, /, jobs: int, workers: int, seconds: float, url: str | None, as_json: bool
) -> None:
    """Show that no job is lost when workers are killed.

    Enqueues jobs, runs worker processes, sends SIGKILL to one of them every second, and counts in
    the end. Needs nothing, and leaves nothing behind. Exit code 1: something was lost or stuck.
    """
    from rich.console import Console

    from ..demo.run import Plan, demonstrate
    from ..demo.show import remarks, shown, table

    url, _ = place(ctx)
    if url is not None and url.startswith("sqlite"):
        raise InvalidSetting(
            field="url", reason="is for PostgreSQL: on SQLite the demo makes a file of its own"
        )
    console = Console(quiet=as_json, highlight=False)
    console.print(
        f"{jobs:,} jobs, {workers} worker processes on {'PostgreSQL' if url else 'SQLite'},"
        " one of them killed every second"
    )
    # Asked to stop, it still ends its workers and takes away what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with shown(console) as watch:
        verdict, said = demonstrate(Plan(jobs, workers, seconds), url, watch)
    if as_json:
        print_json(verdict.as_json())
    console.print()
    console.print(table(verdict))
    console.print(f"\n{remarks(verdict)}", soft_wrap=True)
    if not verdict.ok:
        wrong = "the promise was broken" if verdict.broken else "not all is done: see --seconds"
        click.echo(f"\noutlast: {wrong}; the workers said last:\n{said}", err=True)
        sys.exit(1)
