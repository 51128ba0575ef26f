"""Erasing the data of ended jobs, and removing them: `outlast forget` and `outlast purge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..model.humanize import format_duration as in_words
from ..model.humanize import pluralize
from ..model.lifecycle import State
from .database_options import json_option, with_client
from .job_actions import apply_each, confirm, print_count, print_results
from .jobs import filter_options
from .parsing import parse_duration
from .progress import ProgressLine, counted_pages

if TYPE_CHECKING:
    from ..client.client import Outlast


@click.command(epilog="Example: outlast forget 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option
@with_client
def forget(ol: Outlast, ids: Sequence[str], as_json: bool) -> None:
    """Erase the data of ended jobs: arguments, results, errors, steps and events' data.

    The row stays, with times, state and key. Exit code 1: a job was not found, or has not ended
    yet.
    """
    print_results(apply_each(ids, ol.forget), as_json, "")


@click.command(
    epilog="""
    \b
    Examples: outlast purge --state dead --task send_mail
              outlast purge --state succeeded --queue mail --older 2h --yes
    """
)
@click.option(
    "--state",
    type=click.Choice([str(state) for state in State if state.final]),
    default=str(State.DEAD),
    show_default=True,
    help="Only this state.",
)
@filter_options
@click.option(
    "--older",
    callback=parse_duration,
    default="0",
    metavar="SPAN",
    help="Only jobs that ended this long ago: 30d.",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
@with_client
def purge(ol: Outlast, older: float, yes: bool, as_json: bool, **chosen: Any) -> None:
    """Remove ended jobs permanently, with their history; the number is shown first.

    Dead jobs are removed in no other way. Jobs that a flow still needs stay.
    """
    from ..client.bulk import purge_request

    selection = purge_request(**chosen, older=older)
    with ProgressLine("Counting jobs"):
        pages = ol._find_pages(selection.which)
    found = sum(map(len, pages))
    old = f", of which those that ended {in_words(older)} ago" if older else ""
    confirm(f"{pluralize(found, chosen['state'] + ' job')}{old} will be removed.", found, yes)
    with ProgressLine("Removed", found) as line:
        done = ol._purge_pages(counted_pages(line, pages), selection)
    print_count("Removed", found, done, as_json)
