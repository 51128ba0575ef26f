"""How fast it is, on your own database: `outlast bench`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..store import open_store
from ..store.address import Address
from ..store.statements import SQLITE
from .failing import safe
from .places import json_option, placed
from .show import console, print_json, table

if TYPE_CHECKING:
    from ..bench.rounds import Plan

F = TypeVar("F", bound=Callable[..., Any])


def cells(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> list[str]:
    """Each may be several, with commas."""
    from ..bench.cells import CELLS, QUICK

    asked = [name for each in names for name in each.split(",") if name]
    if "all" in asked:
        return list(CELLS)
    if unknown := [name for name in asked if name not in CELLS]:
        raise click.BadParameter(f"{unknown[0]!r} is none of: all, {', '.join(CELLS)}.")
    return asked or QUICK


def measuring_options(command: F) -> F:
    """Gives a command the plan of what is to be measured."""

    @wraps(command)
    def with_plan(*args: Any, names: list[str], rounds: int, **given: Any) -> Any:
        from ..bench.rounds import Plan

        plan = Plan(names, rounds, given.pop("jobs"), given.pop("concurrency"))
        return command(*args, plan=plan, **given)

    made = with_plan
    for option in reversed(
        (
            click.option(
                "--cell", "names", metavar="NAME", multiple=True, callback=cells,
                help="What to measure, or all; may be given more than once.",
            ),
            click.option(
                "--jobs", type=click.IntRange(1000, 10_000_000),
                help="Jobs for each measurement; else what suits the cell.",
            ),
            click.option(
                "--rounds", type=click.IntRange(1, 100), default=3, show_default=True,
                help="How often each is measured, by turns.",
            ),
            click.option(
                "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True,
                help="Jobs in flight in a worker, and the batch of the bare database.",
            ),
        )
    ):  # fmt: skip
        made = option(made)
    return made  # type: ignore[return-value]


@click.command(
    epilog="""
    \b
    Examples: outlast bench
              outlast bench --url postgresql://localhost/test --cell drain,latency
              outlast bench --cell queued,held --rounds 1 --json

    The bare database is the same work in the same table by the driver in a tight loop, without a
    framework. Every measurement has a schema (or a file) of its own, which is removed afterwards,
    also on Ctrl-C; its name begins with that of --schema. Without --url and OUTLAST_URL it takes a
    temporary SQLite file. Exit code 1: something could not be measured.
    """
)
@measuring_options
@placed
@json_option
def bench(plan: Plan, url: str | None, schema: str | None, as_json: bool) -> None:
    """Measure how fast Outlast is, beside the bare database."""
    from ..bench.contender import OURS, found_in
    from ..bench.ground import Ground
    from ..bench.rounds import measure
    from ..bench.show import line

    # Asked to stop, it still takes away what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with _somewhere(url, schema) as (address, folder):
        postgres = None if address.dialect == SQLITE else address.url
        ground = Ground(folder, postgres, schema=address.schema)
        ours = [c for c in found_in(OURS) if c.store == address.dialect]
        results = measure(plan, ours, ground, lambda *said: click.echo(line(*said), err=True))
    if as_json:
        print_json(results)
    else:
        show(results)
    if results["unfit"] or any(cell["failed"] for cell in results["cells"].values()):
        click.get_current_context().exit(1)


def show(results: dict[str, Any]) -> None:
    from ..bench.show import COLUMNS, remarks
    from ..bench.show import table as listed

    click.echo()
    console().print(table(COLUMNS, listed(results)))
    for remark in remarks(results):
        click.echo(safe(remark))


@contextmanager
def _somewhere(url: str | None, schema: str | None) -> Iterator[tuple[Address, Path]]:
    """The database, and a folder for files: beside a SQLite file, because that disk is meant."""
    temporary = url is None and not os.environ.get("OUTLAST_URL")
    # Opened as a program would, which says in words what is missing.
    address = open_store("sqlite:///bench.db" if temporary else url, schema).address
    near = None if temporary or address.path is None else address.path.parent
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=near) as folder:
        yield address, Path(folder)
