"""What has ended and should leave nothing behind: `outlast forget` and `outlast purge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..model.lifecycle import State
from ..model.words import count
from ..model.words import span as in_words
from .jobs import filters
from .places import connected, json_option
from .steering import agreed, each, tell_count, tell_each
from .values import span

if TYPE_CHECKING:
    from ..client import Outlast


@click.command(epilog="Example: outlast forget 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option
@connected
def forget(ol: Outlast, ids: Sequence[str], as_json: bool) -> None:
    """Erase what ended jobs were given, gave and said.

    That they were, when, and how they ended stays; so does the key. Exit code 1: a job was not
    found, or has not ended yet.
    """
    tell_each(each(ids, ol.forget), as_json, "")


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
    help="Which.",
)
@filters
@click.option(
    "--older", callback=span, default="0", metavar="SPAN", help="Only what ended so long ago: 30d."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@connected
def purge(ol: Outlast, older: float, yes: bool, as_json: bool, **chosen: Any) -> None:
    """Remove ended jobs for good, with their history; the number is shown first.

    Dead jobs are removed in no other way. What a flow still needs stays.
    """
    from ..operators import asked_for

    given = asked_for(**chosen, older=older)
    pages = list(ol._pages(given[0]))
    found = sum(map(len, pages))
    old = f", of which those that ended {in_words(older)} ago are" if older else ""
    agreed(f"{count(found, chosen['state'] + ' job')}{old} to be removed.", found, yes)
    tell_count("Removed", found, ol._purge_pages(pages, given), as_json)
