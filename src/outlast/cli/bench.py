"""Benchmarks on your own database: `outlast bench`."""

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
from ..store.dialects import SQLITE
from .database_options import json_option, with_database_options
from .errors import printable
from .output import console, print_json, table

if TYPE_CHECKING:
    from ..bench.rounds import Plan

F = TypeVar("F", bound=Callable[..., Any])


def parse_cells(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> list[str]:
    """The cells by name; each value may list several, separated by commas."""
    from ..bench.cells import CELLS, QUICK

    chosen = [name for each in names for name in each.split(",") if name]
    if "all" in chosen:
        return list(CELLS)
    if unknown := [name for name in chosen if name not in CELLS]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of: all, {', '.join(CELLS)}.")
    return chosen or QUICK


def plan_options(command: F) -> F:
    """Pass the plan of measurements to a command."""

    @wraps(command)
    def with_plan(*args: Any, names: list[str], rounds: int, **given: Any) -> Any:
        from ..bench.rounds import Plan

        plan = Plan(names, rounds, given.pop("jobs"), given.pop("concurrency"))
        return command(*args, plan=plan, **given)

    decorated = with_plan
    for option in reversed(
        (
            click.option(
                "--cell", "names", metavar="NAME", multiple=True, callback=parse_cells,
                help="Cell to measure, or all; repeatable.",
            ),
            click.option(
                "--jobs", type=click.IntRange(1000, 10_000_000),
                help="Jobs per measurement; default: depends on the cell.",
            ),
            click.option(
                "--rounds", type=click.IntRange(1, 100), default=3, show_default=True,
                help="Interleaved measurements of each cell.",
            ),
            click.option(
                "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True,
                help="Jobs in flight in a worker, and batch size of the bare database.",
            ),
        )
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[return-value]


@click.command(
    epilog="""
    \b
    Examples: outlast bench
              outlast bench --url postgresql://localhost/test --cell drain,latency
              outlast bench --cell queued,held --rounds 1 --json

    The bare database does the same work in the same table with the driver in a tight loop, without
    a framework. Every measurement has its own schema (or file), which is removed afterwards, also
    on Ctrl-C; its name begins with that of --schema. Without --url and OUTLAST_URL, a temporary
    SQLite file is used. Exit code 1: a measurement failed.
    """
)
@plan_options
@with_database_options
@json_option
def bench(plan: Plan, url: str | None, schema: str | None, as_json: bool) -> None:
    """Measure the speed of Outlast, compared with the bare database."""
    from ..bench.contender import OURS, found_in
    from ..bench.ground import Ground
    from ..bench.rounds import measure
    from ..bench.show import line

    # On SIGTERM, remove the schemas and files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with _database_and_folder(url, schema) as (address, folder):
        postgres = None if address.dialect == SQLITE else address.url
        ground = Ground(folder, postgres, schema=address.schema)
        ours = [c for c in found_in(OURS) if c.store == address.dialect]
        results = measure(plan, ours, ground, lambda *said: click.echo(line(*said), err=True))
    if as_json:
        print_json(results)
    else:
        print_results(results)
    if results["unfit"] or any(cell["failed"] for cell in results["cells"].values()):
        click.get_current_context().exit(1)


def print_results(results: dict[str, Any]) -> None:
    from ..bench.show import COLUMNS, remarks
    from ..bench.show import table as listed

    click.echo()
    console().print(table(COLUMNS, listed(results)))
    for remark in remarks(results):
        click.echo(printable(remark))


@contextmanager
def _database_and_folder(url: str | None, schema: str | None) -> Iterator[tuple[Address, Path]]:
    """The database, and a folder for files: beside a SQLite file, to measure the same disk."""
    temporary = url is None and not os.environ.get("OUTLAST_URL")
    # Opened as an app does, which reports a missing extra or file.
    address = open_store("sqlite:///bench.db" if temporary else url, schema).address
    near = None if temporary or address.path is None else address.path.parent
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=near) as folder:
        yield address, Path(folder)
