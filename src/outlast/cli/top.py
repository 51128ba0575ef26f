"""A live view in the terminal: `outlast top`."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import StoreError
from ..model.job import Job
from ..model.lifecycle import State
from ..model.outcome import reason
from ..model.words import span
from ..ops import report
from ..ops.report import Filter, Queue, Worker
from ..ops.statement import Op
from .failing import sentence
from .places import connected, json_option
from .queues import OPEN_STATES, queue_columns, queue_row
from .show import console, print_json, short, table
from .workers import WORKER_COLUMNS, worker_row

if TYPE_CHECKING:
    from rich.console import Group

    from ..client import Outlast

ROWS = 15  # of each list


@dataclass(frozen=True, slots=True)
class Glance:
    """What there is to see at one moment."""

    now: float
    counts: dict[str, int]
    ended: dict[str, Any]  # in the last minute
    queues: list[Queue]
    workers: list[Worker]
    running: list[Job]
    dead: list[Job]


def glance() -> Op[Glance]:
    now = yield from report.clock()
    counts = yield from report.counts()
    throughput = yield from report.throughput()
    ended = {
        state: {"number": number, "mean_wait": wait, "mean_run": run}
        for state, (number, wait, run) in throughput.items()
    }
    queues = yield from report.queues()
    workers = yield from report.workers()
    running = yield from report.jobs(Filter(state=State.RUNNING), None, ROWS)
    dead = yield from report.jobs(Filter(state=State.DEAD), None, ROWS)
    return Glance(now, counts, ended, queues, workers, running, dead)


@click.command(epilog="Example: outlast top --interval 0.5")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option("--once", is_flag=True, help="Look once and print; needs no terminal.")
@json_option
@connected
def top(ol: Outlast, interval: float, once: bool, as_json: bool) -> None:
    """Watch jobs, queues and workers. q or Ctrl-C leaves.

    With --json it looks once.
    """
    if as_json:
        print_json(ol.store.run(glance))
    elif once:
        console().print(view(ol, ol.store.run(glance)))
    elif sys.stdout.isatty():
        with suppress(KeyboardInterrupt):
            watch(ol, interval)
    else:
        raise click.UsageError("This is no terminal: say --once.")


def watch(ol: Outlast, interval: float) -> None:
    """Look again and again. A database that goes away is said, and waited for."""
    from rich.live import Live

    last = ol.store.run(glance)
    with keys() as pressed, Live(view(ol, last), console=console(), screen=True) as live:
        while pressed(interval) not in ("q", "Q"):
            try:
                last, trouble = ol.store.run(glance), ""
            except StoreError as error:
                trouble = sentence(error)
            live.update(view(ol, last, trouble))


@contextmanager
def keys() -> Iterator[Any]:
    """A wait of some seconds that a key cuts short; it returns the key."""
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
        return sys.stdin.read(1) if ready else ""

    try:
        tty.setcbreak(fd)
        yield wait
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def view(ol: Outlast, seen: Glance, trouble: str = "") -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(f"outlast  {ol.store.address}", style="bold")]
    if trouble:
        parts.append(Text(trouble, style="red"))
    parts += [Text(""), table([f"{state}#" for state in seen.counts], [list(seen.counts.values())])]
    parts += [Text(""), Text(_pace(seen))]
    for title, columns, rows in _lists(seen):
        if rows:
            parts += [Text(f"\n{title}", style="bold"), table(columns, rows)]
    return Group(*parts)


def _pace(seen: Glance) -> str:
    done = seen.ended.get(State.SUCCEEDED)
    if not done:
        return "Nothing succeeded in the last minute."
    return (
        f"{done['number']:,} succeeded in the last minute,"
        f" after {span(done['mean_wait'])} of waiting and {span(done['mean_run'])} of running."
    )


def _lists(seen: Glance) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    rows = [queue_row(queue, OPEN_STATES) for queue in seen.queues[:ROWS]]
    yield "Queues", queue_columns(OPEN_STATES), rows
    yield "Workers", WORKER_COLUMNS, [worker_row(worker) for worker in seen.workers[:ROWS]]
    yield (
        "Running",
        ["id", "task", "queue", "attempt#", "for#", "worker"],
        [[j.id, j.task, j.queue, j.attempt, _for(j, seen.now), j.worker] for j in seen.running],
    )
    yield (
        "Dead",
        ["id", "task", "queue", "died", "reason"],
        [[j.id, j.task, j.queue, j.finished_at, short(reason(j.error))] for j in seen.dead],
    )


def _for(job: Job, now: float) -> str | None:
    return None if job.started_at is None else span(now - job.started_at.timestamp())
