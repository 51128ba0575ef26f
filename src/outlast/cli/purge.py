"""`outlast purge`: remove ended jobs permanently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..model.humanize import format_duration as in_words
from ..model.humanize import pluralize
from ..model.lifecycle import State
from .database_options import json_option, with_client
from .job_actions import confirm, print_count
from .jobs import filter_options
from .parsing import parse_duration
from .progress import ProgressLine, counted_pages

if TYPE_CHECKING:
    from ..client.client import Outlast


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
