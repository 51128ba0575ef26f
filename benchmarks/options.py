"""Options and output of `python -m benchmarks run`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from benchmarks.cells import CELLS, QUICK
from benchmarks.rounds import Plan
from benchmarks.show import COLUMNS, remarks
from benchmarks.show import table as rows_of
from outlast.cli.errors import printable
from outlast.cli.output import console, table

F = TypeVar("F", bound=Callable[..., Any])


def parse_cells(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> list[str]:
    """The cells by name; each value may list several, separated by commas."""
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


def print_results(results: dict[str, Any]) -> None:
    click.echo()
    console().print(table(COLUMNS, rows_of(results)))
    for remark in remarks(results):
        click.echo(printable(remark))
