"""Output of commands: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..model.humanize import format_duration
from .errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DEFAULT_WIDTH = 400  # columns, when standard output is not a terminal
MIN_WIDTH = 80  # columns of a table


def print_json(value: object) -> None:
    """Print ASCII-only JSON: every terminal can show it, and none interprets it."""
    click.echo(json.dumps(to_json(value), indent=2))


def to_json(value: object) -> Any:
    """Convert a value to JSON types; jobs look the same as in every other interface."""
    from ..model.job import Job

    if isinstance(value, Job):
        return to_json(value.as_json())
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(asdict(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def console() -> Console:
    """For what scrolls: a narrow terminal wraps lines, which keeps ids and numbers whole."""
    made = screen_console()
    made.width = max(made.width, MIN_WIDTH)
    return made


def screen_console() -> Console:
    """For a view that is refreshed in place, as wide as the terminal."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else DEFAULT_WIDTH
    return Console(width=wide, highlight=False, emoji=False, markup=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], none: str) -> None:
    """Print a table, or the sentence `none` if there are no rows."""
    listed = list(rows)
    if listed:
        console().print(table(columns, listed))
    else:
        click.echo(none)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; a column whose name ends in # is right-aligned, and ids are never cut."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        number = column.endswith("#")
        grid.add_column(
            column.rstrip("#"),
            justify="right" if number else "left",
            no_wrap=True,
            min_width=36 if column == "id" else None,
            overflow="ellipsis",
        )
    for row in rows:
        grid.add_row(*(format_cell(value) for value in row))
    return grid


def format_cell(value: object) -> Any:
    from rich.text import Text

    if value is None:
        return Text("–", style="dim")
    if isinstance(value, datetime):
        return Text(local_time(value))
    return Text(printable(str(value)).replace("\n", " "), style=STYLES.get(str(value), ""))


STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "dead": "red",
    "cancelled": "yellow",
    "cancelling": "yellow",
    "partial": "yellow",
    "paused": "yellow",
    "silent": "red",
}


def local_time(value: datetime) -> str:
    """A timestamp in this machine's time zone."""
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float | None) -> str | None:
    return None if seconds is None else f"{format_duration(seconds)} ago"


def shorten(text: str, limit: int = 100) -> str:
    """The text on one line, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
