"""Queues: what they hold, and whether they are claimed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..model.lifecycle import State
from ..model.words import count, span
from .failing import Failed, command_line_values, safe
from .places import connected, json_option
from .show import print_json, print_table
from .values import span as span_of

if TYPE_CHECKING:
    from ..client import Outlast
    from ..ops.breaker_report import BreakerState
    from ..ops.report import Queue


NAMED = 10  # open breakers that are named where another was asked for
OPEN_STATES = ("waiting", "scheduled", "ready", "running", "dead")  # counted without a full scan
STATES = tuple(str(state) for state in State)


@click.command(epilog="Example: outlast queues --json")
@json_option
@connected
def queues(ol: Outlast, as_json: bool) -> None:
    """List the queues and what they hold."""
    found = ol.queues()
    if as_json:
        print_json(found)
    else:
        rows = (queue_row(queue, STATES) for queue in found)
        print_table(queue_columns(STATES), rows, none="There is no queue yet.")
        for breaker in [one for queue in found for one in queue.breakers]:
            click.echo(breaker_line(breaker))


def queue_columns(states: Sequence[str]) -> list[str]:
    return ["queue", "", *(f"{state}#" for state in states), "oldest ready#"]


def breaker_line(breaker: BreakerState) -> str:
    since = breaker.opened_at.astimezone().strftime("%H:%M %Z")
    return safe(
        f"Breaker open: queue {breaker.queue}, task {breaker.task}: {breaker.reason}; since {since}"
        f" ({span(breaker.open_for)}), {breaker.probe_in_words}."
    )


def queue_row(queue: Queue, states: Sequence[str]) -> list[object]:
    held = [one.task for one in queue.breakers]
    return [
        queue.name,
        ", ".join(["paused"] * queue.paused + ["open: " + ", ".join(held)] * bool(held)),
        *(queue.counts.get(state, 0) for state in states),
        None if queue.oldest is None else span(queue.oldest),
    ]


@click.command(epilog="Example: outlast pause mail")
@click.argument("queue")
@json_option
@connected
def pause(ol: Outlast, queue: str, as_json: bool) -> None:
    """Claim no more jobs of QUEUE; running ones go on. Survives restarts."""
    with command_line_values():
        ol.pause(queue)
    _say(ol, queue, as_json)


@click.command(epilog="Example: outlast resume mail")
@click.argument("queue")
@json_option
@connected
def resume(ol: Outlast, queue: str, as_json: bool) -> None:
    """Claim jobs of QUEUE again."""
    with command_line_values():
        ol.resume(queue)
    _say(ol, queue, as_json)


@click.command("close-breaker", epilog="Example: outlast close-breaker mail send")
@click.argument("queue")
@click.argument("task", required=False)
@json_option
@connected
def close_breaker(ol: Outlast, queue: str, task: str | None, as_json: bool) -> None:
    """Close the open circuit breaker of TASK in QUEUE, or all of the queue: run its jobs at once.

    A breaker closes by itself when a probe succeeds; `outlast queues` shows those that are open.
    Exits 1 if TASK is named and its breaker is not open.
    """
    with command_line_values():
        closed = ol.close_breaker(queue, task)
    still = ol.breakers()
    if as_json:
        there = [one.task for one in still if one.queue == queue]
        print_json({"queue": queue, "task": task, "closed": closed, "open": there})
    elif closed:
        click.echo(f"{queue}: {count(closed, 'breaker')} closed.")
    elif task is not None:
        raise Failed(_none_closed(queue, task, still))
    else:
        click.echo(_none_closed(queue, task, still))
    if task is not None and not closed:
        raise SystemExit(1)


def _none_closed(queue: str, task: str | None, still: Sequence[BreakerState]) -> str:
    """What is open instead: a name may have been mistyped."""
    which = "no breaker" if task is None else f"no breaker of the task {task}"
    there = [one.task for one in still if one.queue == queue]
    known = there or [f"{one.task} in {one.queue}" for one in still]
    found = ", ".join(known[:NAMED])
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    return safe(f"{queue}: {which} is open." + (f" Open: {found}{more}." if found else ""))


@click.command(
    epilog="""
    \b
    Examples: outlast keep mail 1h
              outlast keep mail --undo
    """
)
@click.argument("queue")
@click.argument("seconds", callback=span_of, required=False, metavar="[SPAN]")
@click.option("--undo", is_flag=True, help="As long as in all other queues.")
@json_option
@connected
def keep(ol: Outlast, queue: str, seconds: float | None, undo: bool, as_json: bool) -> None:
    """Keep what has succeeded or was cancelled in QUEUE for SPAN at the most: 30, 5m, 2h, 1d.

    Less than all other queues do (OUTLAST_KEEP_SUCCEEDED, OUTLAST_KEEP_CANCELLED). Dead jobs are
    kept until someone acts. Survives restarts.
    """
    if undo == (seconds is not None):
        raise click.UsageError("Say for how long, or --undo.")
    ol.keep(queue, seconds)
    if as_json:
        print_json({"queue": queue, "keep": seconds})
    elif seconds is None:
        click.echo(f"{queue} keeps what has ended as long as all others.")
    else:
        click.echo(f"{queue} keeps what has ended for {span(seconds)} at the most.")


def _say(ol: Outlast, name: str, as_json: bool) -> None:
    queue = next(queue for queue in ol.queues() if queue.name == name)
    ready = queue.counts.get("ready", 0)
    if as_json:
        print_json(queue)
    else:
        click.echo(f"{name} is {'paused' if queue.paused else 'open'}; ready: {ready}.")
