"""Queues: job counts, pausing, breakers and retention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

import click

from ..model.humanize import format_duration, pluralize
from ..model.lane import QueueLimits
from ..model.lifecycle import State
from .database_options import json_option, with_client
from .errors import CommandFailed, as_usage_errors, printable
from .output import print_json, print_table
from .parsing import parse_duration as span_of

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..ops.breaker_report import BreakerState
    from ..ops.report import Queue

F = TypeVar("F", bound=Callable[..., object])

MAX_NAMED_BREAKERS = 10  # open breakers listed in an error message
OPEN_STATES = ("waiting", "scheduled", "ready", "running", "dead")  # counted without a full scan
STATES = tuple(str(state) for state in State)


@click.command(epilog="Example: outlast queues --json")
@json_option
@with_client
def queues(ol: Outlast, as_json: bool) -> None:
    """List the queues and their job counts."""
    from ..ops.archive import archive_state

    found = ol.queues()
    if as_json:
        print_json(found)
    else:
        workers = ol.workers()
        rows = (
            queue_row(
                queue, STATES, served=any(one.alive and one.serves(queue.name) for one in workers)
            )
            for queue in found
        )
        print_table(queue_columns(STATES), rows, none="No queues yet.")
        if archived := ol.store.run(archive_state).jobs:
            click.echo(f"{pluralize(archived, 'succeeded job')} of these in the archive.")
        for breaker in [one for queue in found for one in queue.breakers]:
            click.echo(breaker_line(breaker))
        for queue in [one for one in found if one.limits]:
            click.echo(printable(f"Limits of {queue.name}: {limits_in_words(queue)}."))


def queue_columns(states: Sequence[str]) -> list[str]:
    return ["queue", "", *(f"{state}#" for state in states), "oldest ready#"]


def limits_in_words(queue: Queue) -> str:
    limits = QueueLimits(queue.name).with_overrides(queue.limits)
    return limits.in_words(running=queue.counts.get("running", 0))


def breaker_line(breaker: BreakerState) -> str:
    since = breaker.opened_at.astimezone().strftime("%H:%M %Z")
    return printable(
        f"Breaker open: queue {breaker.queue}, task {breaker.task}: {breaker.reason}; since {since}"
        f" ({format_duration(breaker.open_for)}), {breaker.probe_in_words}."
    )


def queue_row(queue: Queue, states: Sequence[str], *, served: bool = True) -> list[object]:
    """`served`: a live worker claims from it."""
    held = [one.task for one in queue.breakers]
    notes = ["paused"] * queue.paused + ["open: " + ", ".join(held)] * bool(held)
    return [
        queue.name,
        ", ".join([*notes, *["no worker"] * (not served)]),
        *(queue.counts.get(state, 0) for state in states),
        None if queue.oldest is None else format_duration(queue.oldest),
    ]


def _what_to_pause(command: F) -> F:
    """QUEUE, or a lane of it, or a tenant."""
    command = click.option("--tenant", help="Instead of QUEUE: the tenant's lanes in all queues.")(
        command
    )
    command = click.option("--lane", help="Only this lane of QUEUE.")(command)
    return click.argument("queue", required=False)(command)


@click.command(epilog="Example: outlast pause mail --lane acme")
@_what_to_pause
@json_option
@with_client
def pause(
    ol: Outlast, queue: str | None, lane: str | None, tenant: str | None, as_json: bool
) -> None:
    """Stop claiming jobs of QUEUE, of a lane or a tenant; running ones continue.

    Survives restarts.
    """
    known = None if queue is None or as_json else [one.name for one in ol.queues()]
    with as_usage_errors():
        ol.pause(queue, lane=lane, tenant=tenant)
    _print_paused(ol, queue, lane, tenant, "paused", as_json)
    if queue is not None and known is not None and queue not in known:
        click.echo(printable(_unknown_queue_note(ol, queue, known)))


def _unknown_queue_note(ol: Outlast, queue: str, known: Sequence[str]) -> str:
    """A note about a queue that no job or setting has named: its name may be misspelt."""
    named = {*known, *(name for worker in ol.workers() for name in worker.queues or ())} - {queue}
    near = get_close_matches(queue, sorted(named), n=1)
    meant = f" Did you mean {near[0]}? Undo with `outlast resume {queue}`." if near else ""
    return f"Note: no job and no setting has named the queue {queue} so far.{meant}"


@click.command(epilog="Example: outlast resume mail")
@_what_to_pause
@json_option
@with_client
def resume(
    ol: Outlast, queue: str | None, lane: str | None, tenant: str | None, as_json: bool
) -> None:
    """Resume claiming jobs of QUEUE, of a lane or a tenant."""
    with as_usage_errors():
        ol.resume(queue, lane=lane, tenant=tenant)
    _print_paused(ol, queue, lane, tenant, "open", as_json)


def _print_paused(
    ol: Outlast, queue: str | None, lane: str | None, tenant: str | None, state: str, as_json: bool
) -> None:
    if queue is not None and lane is None:
        _print_queue(ol, queue, as_json)
    elif as_json:
        print_json({"queue": queue, "lane": lane, "tenant": tenant, "paused": state == "paused"})
    else:
        what = f"Lane {lane} of {queue}" if lane is not None else f"Tenant {tenant}"
        click.echo(printable(f"{what} is {state}."))


@click.command("close-breaker", epilog="Example: outlast close-breaker mail send")
@click.argument("queue")
@click.argument("task", required=False)
@json_option
@with_client
def close_breaker(ol: Outlast, queue: str, task: str | None, as_json: bool) -> None:
    """Close the circuit breaker of TASK in QUEUE, or all of QUEUE's, and run the jobs at once.

    A breaker closes by itself when a probe succeeds; `outlast queues` lists the open ones.
    Exit code 1: TASK is named and its breaker is not open.
    """
    with as_usage_errors():
        closed = ol.close_breaker(queue, task)
    open_breakers = ol.breakers()
    if as_json:
        there = [one.task for one in open_breakers if one.queue == queue]
        print_json({"queue": queue, "task": task, "closed": closed, "open": there})
    elif closed:
        click.echo(f"{queue}: {pluralize(closed, 'breaker')} closed.")
    elif task is not None:
        raise CommandFailed(_not_open_message(queue, task, open_breakers))
    else:
        click.echo(_not_open_message(queue, task, open_breakers))
    if task is not None and not closed:
        raise SystemExit(1)


def _not_open_message(queue: str, task: str | None, open_breakers: Sequence[BreakerState]) -> str:
    """The message, with the breakers that are open: the name may be misspelt."""
    which = "no breaker" if task is None else f"no breaker of the task {task}"
    there = [one.task for one in open_breakers if one.queue == queue]
    known = there or [f"{one.task} in {one.queue}" for one in open_breakers]
    found = ", ".join(known[:MAX_NAMED_BREAKERS])
    more = f" and {len(known) - MAX_NAMED_BREAKERS} more" if len(known) > MAX_NAMED_BREAKERS else ""
    return printable(f"{queue}: {which} is open." + (f" Open: {found}{more}." if found else ""))


@click.command(
    epilog="""
    \b
    Examples: outlast keep mail 1h
              outlast keep mail --undo
    """
)
@click.argument("queue")
@click.argument("seconds", callback=span_of, required=False, metavar="[SPAN]")
@click.option("--undo", is_flag=True, help="Restore the retention of all other queues.")
@json_option
@with_client
def keep(ol: Outlast, queue: str, seconds: float | None, undo: bool, as_json: bool) -> None:
    """Keep succeeded and cancelled jobs of QUEUE for SPAN at most: 30, 5m, 2h, 1d.

    For a retention shorter than the general one (OUTLAST_KEEP_SUCCEEDED, OUTLAST_KEEP_CANCELLED).
    Dead jobs are kept until an operator acts. Survives restarts.
    """
    if undo == (seconds is not None):
        raise click.UsageError("Pass either SPAN or --undo.")
    ol.keep(queue, seconds)
    if as_json:
        print_json({"queue": queue, "keep": seconds})
    elif seconds is None:
        click.echo(f"{queue} keeps ended jobs as long as all other queues.")
    else:
        click.echo(f"{queue} keeps ended jobs for {format_duration(seconds)} at most.")


def _print_queue(ol: Outlast, name: str, as_json: bool) -> None:
    from ..ops.report import Queue

    found = (queue for queue in ol.queues() if queue.name == name)
    queue = next(found, Queue(name))  # an unknown queue is open
    ready = queue.counts.get("ready", 0)
    if as_json:
        print_json(queue)
    else:
        click.echo(f"{name} is {'paused' if queue.paused else 'open'}; ready: {ready}.")
