"""How things are printed: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..model.words import span
from .failing import safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 400  # columns, where no terminal says how many there are


def print_json(value: Any) -> None:
    """ASCII, so that it can be printed anywhere and no terminal obeys it."""
    click.echo(json.dumps(plain(value), indent=2))


def plain(value: Any) -> Any:
    """A value as JSON has it; jobs look the same as on every other path."""
    from ..model.job import Job

    if isinstance(value, Job):
        return plain(value.as_json())
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def console() -> Console:
    from rich.console import Console

    wide = None if sys.stdout.isatty() else WIDE
    return Console(width=wide, highlight=False, emoji=False, markup=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], none: str) -> None:
    """A table, or the sentence that says that there is nothing."""
    listed = list(rows)
    if listed:
        console().print(table(columns, listed))
    else:
        click.echo(none)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A column whose name ends in # holds numbers; ids are never cut."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        number = column.endswith("#")
        made.add_column(
            column.rstrip("#"),
            justify="right" if number else "left",
            no_wrap=True,
            min_width=36 if column == "id" else None,
            overflow="ellipsis",
        )
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


def cell(value: Any) -> Any:
    from rich.text import Text

    if value is None:
        return Text("–", style="dim")
    if isinstance(value, datetime):
        return Text(moment(value))
    return Text(safe(str(value)).replace("\n", " "), style=STYLES.get(str(value), ""))


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


def moment(value: datetime) -> str:
    """A moment on this machine's clock face."""
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float | None) -> str | None:
    return None if seconds is None else f"{span(seconds)} ago"


def short(text: str, limit: int = 100) -> str:
    """One line of it."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
