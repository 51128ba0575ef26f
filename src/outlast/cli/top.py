"""A live view in the terminal: `outlast top`."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import StoreError
from ..model.humanize import format_duration
from ..model.job import Job
from ..model.lifecycle import State
from ..model.outcome import reason
from ..ops import report
from ..ops.operation import Op
from ..ops.report import Filter, Queue, WorkerInfo
from .database_options import json_option, with_client
from .errors import error_message
from .output import console, print_json, screen_console, shorten, table
from .queues import OPEN_STATES, queue_columns, queue_row
from .signals import unwind_on_signals
from .workers import WORKER_COLUMNS, worker_row

if TYPE_CHECKING:
    from rich.console import Group

    from ..client.client import Outlast

MAX_ROWS = 15  # per table
MAX_TYPED = 1000  # bytes read at once


@dataclass(frozen=True, slots=True)
class TopSnapshot:
    """Counts, queues, workers and jobs at one time."""

    now: float
    counts: dict[str, int]
    ended: dict[str, Any]  # in the last minute
    queues: list[Queue]
    workers: list[WorkerInfo]
    running: list[Job]
    dead: list[Job]


def read_snapshot() -> Op[TopSnapshot]:
    now = yield from report.clock()
    counts = yield from report.counts()
    throughput = yield from report.throughput()
    ended = {
        state: {"number": number, "mean_wait": wait, "mean_run": run}
        for state, (number, wait, run) in throughput.items()
    }
    queues = yield from report.queues()
    workers = yield from report.workers()
    running = yield from report.jobs(Filter(state=State.RUNNING), None, MAX_ROWS)
    dead = yield from report.jobs(Filter(state=State.DEAD), None, MAX_ROWS)
    return TopSnapshot(now, counts, ended, queues, workers, running, dead)


@click.command(epilog="Example: outlast top --interval 0.5")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between refreshes.",
)
@click.option("--once", is_flag=True, help="Print one snapshot; needs no terminal.")
@json_option
@with_client
def top(ol: Outlast, interval: float, once: bool, as_json: bool) -> None:
    """Watch jobs, queues and workers. Quit with q or Ctrl-C.

    With --json, prints one snapshot.
    """
    if as_json:
        print_json(ol.store.run(read_snapshot))
    elif once:
        console().print(view(ol, ol.store.run(read_snapshot)))
    elif sys.stdout.isatty():
        with suppress(KeyboardInterrupt):
            watch(ol, interval)
    else:
        raise click.UsageError("Not a terminal: pass --once.")


def watch(ol: Outlast, interval: float) -> None:
    """Refresh until the user quits. A database outage is shown and waited out."""
    from rich.live import Live

    snapshot = ol.store.run(read_snapshot)
    unwind_on_signals()
    with (
        key_presses() as pressed,
        Live(view(ol, snapshot), console=screen_console(), screen=True) as live,
    ):
        while "q" not in pressed(interval).lower():
            try:
                snapshot, trouble = ol.store.run(read_snapshot), ""
            except StoreError as error:
                trouble = error_message(error)
            live.update(view(ol, snapshot, trouble))


@contextmanager
def key_presses() -> Iterator[Any]:
    """A function that waits some seconds or until a key is pressed, and returns what was typed:
    some keys, such as the arrows, are several characters."""
    if not sys.stdin.isatty():

        def sleep(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield sleep
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([fd], [], [], seconds)
        return os.read(fd, MAX_TYPED).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(fd)
        yield wait
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def view(ol: Outlast, snapshot: TopSnapshot, trouble: str = "") -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(f"outlast  {ol.store.address}", style="bold")]
    if trouble:
        parts.append(Text(trouble, style="red"))
    parts += [
        Text(""),
        table([f"{state}#" for state in snapshot.counts], [list(snapshot.counts.values())]),
    ]
    parts += [Text(""), Text(_throughput_line(snapshot))]
    for title, columns, rows in _tables(snapshot):
        if rows:
            parts += [Text(f"\n{title}", style="bold"), table(columns, rows)]
    return Group(*parts)


def _throughput_line(snapshot: TopSnapshot) -> str:
    done = snapshot.ended.get(State.SUCCEEDED)
    if not done:
        return "Nothing succeeded in the last minute."
    return (
        f"{done['number']:,} succeeded in the last minute;"
        f" mean wait {format_duration(done['mean_wait'])}, mean run time"
        f" {format_duration(done['mean_run'])}."
    )


def _tables(snapshot: TopSnapshot) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    rows = [queue_row(queue, OPEN_STATES) for queue in snapshot.queues[:MAX_ROWS]]
    yield "Queues", queue_columns(OPEN_STATES), rows
    yield "Workers", WORKER_COLUMNS, [worker_row(worker) for worker in snapshot.workers[:MAX_ROWS]]
    yield (
        "Running",
        ["id", "task", "queue", "attempt#", "for#", "worker"],
        [
            [j.id, j.task, j.queue, j.attempt, _running_for(j, snapshot.now), j.worker]
            for j in snapshot.running
        ],
    )
    yield (
        "Dead",
        ["id", "task", "queue", "died", "reason"],
        [[j.id, j.task, j.queue, j.finished_at, shorten(reason(j.error))] for j in snapshot.dead],
    )


def _running_for(job: Job, now: float) -> str | None:
    return None if job.started_at is None else format_duration(now - job.started_at.timestamp())
