"""`outlast events`: follow what happens to jobs."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import click

from .database_options import json_option, with_client
from .errors import one_line
from .jobs import filter_options
from .output import local_time, to_json
from .parsing import parse_duration

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..ops.live_events import LiveEvent


@click.command(epilog="Example: outlast events --kind started,succeeded,attempt --queue mail")
@click.option(
    "--kind",
    "kinds",
    metavar="NAMES",
    help="Only these kinds, separated by commas; started and succeeded must be named.",
)
@filter_options
@click.option("--flow", metavar="ID", help="Only this flow, from its beginning to its end.")
@click.option("--after", metavar="ID", help="Begin after this event; 0: with the first one.")
@click.option(
    "--stay", callback=parse_duration, metavar="SPAN", help="End after this; default: never."
)
@json_option
@with_client
def events(
    ol: Outlast, kinds: str | None, stay: float | None, as_json: bool, **chosen: Any
) -> None:
    """Print events of jobs as they happen, until interrupted.

    With --json, one object a line.
    """
    names = None if kinds is None else [name.strip() for name in kinds.split(",")]
    following = ol.events(kinds=names, **chosen)
    ol.limits()  # fails if the database is unavailable at the start; later outages are waited out
    timer = threading.Timer(stay or 0.0, following.stop)
    timer.daemon = True
    if stay is not None:
        timer.start()
    try:
        for event in following:
            click.echo(json.dumps(to_json(event)) if as_json else _line(event))
    finally:
        timer.cancel()


def _line(event: LiveEvent) -> str:
    at = "" if event.at is None else local_time(event.at)
    about = " ".join(part for part in (event.task, event.job or event.flow) if part)
    data = "" if event.data is None else one_line(json.dumps(event.data))
    return one_line(f"{at}  {event.kind:<10}  {about}  ").rstrip() + (f"  {data}" if data else "")
