"""Limits of queues at run time, and the lanes behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..model.humanize import format_duration
from .database_options import json_option, with_client
from .errors import as_usage_errors, printable
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..client.client import Outlast


_PER_PERIOD = ("rate", "lane_rate", "quota", "lane_quota")


def _whole(text: str | None) -> int | None:
    """A number, or None for "none": no limit."""
    if text is None or text.lower() == "none":
        return None
    if not text.isdigit():
        raise click.UsageError(f"Pass a whole number or none, not {text!r}.")
    return int(text)


@click.command(epilog="Example: outlast limit mail --running 20 --lane-rate 100/m")
@click.argument("queue")
@click.option("--running", metavar="N", help="Jobs of the queue that run at once; none: no limit.")
@click.option("--lane-running", metavar="N", help="Jobs of one lane that run at once.")
@click.option("--rate", metavar="RATE", help="Starts of the whole queue: 5/s, 600/m, 1000/h.")
@click.option("--lane-rate", metavar="RATE", help="Starts of one lane.")
@click.option("--burst", metavar="N", help="Starts at once after a pause.")
@click.option("--quota", metavar="QUOTA", help="Jobs that the queue admits: 10000/d, 500/15m.")
@click.option("--lane-quota", metavar="QUOTA", help="Jobs that one lane admits.")
@click.option("--reset", is_flag=True, help="Restore the declaration in code.")
@json_option
@with_client
def limit(ol: Outlast, queue: str, reset: bool, as_json: bool, **given: str | None) -> None:
    """Change limits of QUEUE at run time, on record; "none" lifts one.

    A change stays in force, whatever is deployed later, until --reset.
    """
    changes: dict[str, object] = {
        name: (None if text.lower() == "none" else text) if name in _PER_PERIOD else _whole(text)
        for name, text in given.items()
        if text is not None
    }
    if not changes and not reset:
        raise click.UsageError("Pass a limit to change, or --reset.")
    with as_usage_errors():
        changed = ol.limit(queue, reset=reset, **changes)  # type: ignore[arg-type]
    if as_json:
        print_json({"queue": queue, "limits": changed.limits.as_json(),
                    "overrides": changed.overrides})  # fmt: skip
    else:
        click.echo(printable(f"{queue} allows: {changed.limits.in_words()}."))


@click.command(epilog="Example: outlast lanes mail")
@click.argument("queue")
@json_option
@with_client
def lanes(ol: Outlast, queue: str, as_json: bool) -> None:
    """List the deepest lanes of QUEUE: jobs ready, running, and the limit."""
    with as_usage_errors():
        found = ol.lanes(queue)
    if as_json:
        print_json(found)
        return
    rows = [
        [one.lane, "paused" if one.paused else "", one.ready,
         f"{one.running} / {one.limit}" if one.limit is not None else one.running,
         format_duration(one.oldest)]
        for one in found
    ]  # fmt: skip
    columns = ["lane", "", "ready#", "running#", "oldest ready#"]
    print_table(columns, rows, none="No job of this queue waits in a lane.")
