"""Changes to matching jobs that have not started: `outlast reschedule`, `prioritize`, `move`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..model.humanize import pluralize
from ..model.job_change import JobChange
from ..model.lifecycle import State
from ..model.options import MAX_PRIORITY, MIN_PRIORITY
from .database_options import json_option, with_client
from .errors import as_usage_errors
from .job_actions import confirm, print_count
from .jobs import F, filter_options
from .parsing import parse_duration, parse_time
from .progress import ProgressLine, counted_pages

if TYPE_CHECKING:
    from ..client.client import Outlast

yes_option = click.option("--yes", is_flag=True, help="Skip the confirmation.")


def state_option(*states: State, default: State) -> Callable[[F], F]:
    return click.option(
        "--state",
        type=click.Choice([str(state) for state in states]),
        default=str(default),
        show_default=True,
        help="Only this state.",
    )


@click.command(
    epilog="""
    \b
    Examples: outlast reschedule --delay 2h --state ready --queue mail
              outlast reschedule --at 2030-01-31T12:00:00Z --task send_mail --yes
    """
)
@click.option(
    "--delay", callback=parse_duration, metavar="SPAN", help="Start after this: 30, 5m, 2h."
)
@click.option("--at", callback=parse_time, metavar="TIME", help="Start at this time.")
@state_option(State.SCHEDULED, State.READY, default=State.SCHEDULED)
@filter_options
@yes_option
@json_option
@with_client
def reschedule(
    ol: Outlast,
    delay: float | None,
    at: datetime | None,
    yes: bool,
    as_json: bool,
    **chosen: object,
) -> None:
    """Let matching jobs start at another time; the number is shown first."""
    with as_usage_errors():
        change = JobChange.reschedule(delay, at)
    _apply(ol, change, chosen, yes, as_json)


@click.command(
    epilog="""
    \b
    Examples: outlast prioritize 10 --queue mail --task send_invoice
              outlast prioritize -- -5 --tenant acme --yes
    """
)
@click.argument("priority", type=click.IntRange(MIN_PRIORITY, MAX_PRIORITY))
@state_option(State.WAITING, State.SCHEDULED, State.READY, default=State.READY)
@filter_options
@yes_option
@json_option
@with_client
def prioritize(ol: Outlast, priority: int, yes: bool, as_json: bool, **chosen: object) -> None:
    """Give matching jobs PRIORITY; higher starts first. The number is shown first."""
    _apply(ol, JobChange.prioritize(priority), chosen, yes, as_json)


@click.command(
    epilog="""
    \b
    Examples: outlast move bulk --queue mail --task newsletter --yes
              outlast move --lane acme --queue mail --tenant acme
    """
)
@click.argument("to", metavar="[QUEUE]", required=False)
@click.option("--lane", metavar="NAME", help="Another lane of --queue, instead of QUEUE.")
@state_option(State.WAITING, State.SCHEDULED, State.READY, default=State.READY)
@filter_options
@yes_option
@json_option
@with_client
def move(
    ol: Outlast, to: str | None, lane: str | None, yes: bool, as_json: bool, **chosen: object
) -> None:
    """Move matching jobs of --queue to QUEUE, or to another lane of their queue; the number is
    shown first.

    Jobs whose idempotency keys are taken there stay, as do jobs that are unique in their queue.
    """
    with as_usage_errors():
        change = JobChange.move(to, lane)
    _apply(ol, change, chosen, yes, as_json)


_WILL_BE = {"reschedule": "rescheduled", "prioritize": "prioritized", "move": "moved"}


def _apply(
    ol: Outlast, change: JobChange, chosen: dict[str, Any], yes: bool, as_json: bool
) -> None:
    from ..client.bulk import change_filter

    with as_usage_errors():
        which = change_filter(change, **chosen)
    with ProgressLine("Counting jobs"):
        pages = ol._find_pages(which)
    found, done = sum(map(len, pages)), _WILL_BE[change.kind]
    confirm(f"{pluralize(found, chosen['state'] + ' job')} will be {done}.", found, yes)
    with ProgressLine(done.capitalize(), found) as line:
        changed = ol._change_pages(counted_pages(line, pages), chosen["state"], change)
    print_count(done.capitalize(), found, changed, as_json)
