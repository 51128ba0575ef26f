"""Benchmarks on your own database: `outlast bench`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ..store import open_store
from .database_options import json_option, with_database_options
from .errors import printable
from .output import console, print_json, table
from .signals import unwind_on_signals


def parse_cells(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> list[str]:
    """The cells by name; each value may list several, separated by commas."""
    from ..bench import CELLS

    chosen = [name for each in names for name in each.split(",") if name]
    if unknown := [name for name in chosen if name not in (*CELLS, "all")]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of: all, {', '.join(CELLS)}.")
    return list(CELLS) if "all" in chosen or not chosen else list(dict.fromkeys(chosen))


@click.command(
    epilog="""
    \b
    Examples: outlast bench
              outlast bench --url postgresql://localhost/test --cell drain,latency
              outlast bench --cell enqueue --rounds 1 --json

    Every measurement has its own schema (or file), which is removed afterwards, also on Ctrl-C; its
    name begins with that of --schema. Without --url and OUTLAST_URL, a temporary SQLite file is
    used. Exit code 1: a measurement failed.
    """
)
@click.option(
    "--cell", "cells", metavar="NAME", multiple=True, callback=parse_cells,
    help="enqueue, enqueue-bulk, drain, latency, or all; repeatable.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(100, 10_000_000),
    help="Jobs per measurement; default: depends on the cell.",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True,
    help="Measurements of each cell.",
)  # fmt: skip
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True,
    help="Jobs in flight in the worker.",
)  # fmt: skip
@with_database_options
@json_option
def bench(url: str | None, schema: str | None, as_json: bool, **plan: Any) -> None:
    """Measure how fast Outlast enqueues and runs jobs on your database."""
    from ..bench import BenchPlan, run_bench
    from ..verify.workspace import WorkspaceFactory, temporary_url

    unwind_on_signals()  # which removes the schemas and files
    workspaces = WorkspaceFactory(url, schema, "bench")
    # Opened as an app does, which reports a missing extra.
    open_store(temporary_url() if workspaces.temporary else url, schema)
    results = run_bench(
        BenchPlan(**plan), workspaces, lambda line: click.echo(printable(line), err=True)
    )
    if as_json:
        print_json(results)
    else:
        click.echo()
        columns = ["cell", "figure", "median#", "least#", "most#", "jobs#"]
        console().print(table(columns, _rows(results)))


def _rows(results: dict[str, Any]) -> Iterator[list[object]]:
    for name, cell in results["cells"].items():
        for figure, unit in cell["units"].items():
            values = sorted(sample[figure] for sample in cell["samples"])
            spread = [f"{value:,.1f}" for value in (cell["medians"][figure], values[0], values[-1])]
            yield [name, f"{figure}, {unit}", *spread, f"{cell['jobs']:,}"]
