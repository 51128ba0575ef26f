"""Options of the campaigns of `outlast verify`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from .database_options import (
    campaign_url_option,
    json_option,
    refused_url_option,
    with_database_options,
)
from .parsing import parse_duration

F = TypeVar("F", bound=Callable[..., object])

seed_option = click.option("--seed", type=click.IntRange(0), help="Seed of faults and times.")
ledger_option = click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append the figures of this run as one line of JSON.",
)
keep_option = click.option("--keep", is_flag=True, help="Keep schemas and files for inspection.")
budget_option = click.option(
    "--budget",
    metavar="SPAN",
    callback=parse_duration,
    help="Time limit: 90, 10m.",
)


enqueue_budget_option = click.option(
    "--budget",
    metavar="SPAN",
    callback=parse_duration,
    help="How long to enqueue: 90, 90s, 10m. Without --points, 60 s.",
)
first_option = click.option("--first", is_flag=True, help="Stop at the first violation.")


def load_options(
    command: F, url_option: Callable[[Callable[..., Any]], Any] = campaign_url_option
) -> F:
    for option in (keep_option, ledger_option, seed_option):
        command = option(command)
    return json_option(with_database_options(command, url_option))


def own_server_options(why: str) -> Callable[[F], F]:
    """Options of campaigns that start their own database, and so reject --url."""

    def decorate(command: F) -> F:
        @wraps(command)
        def without_url(**options: object) -> None:
            if options["url"] is not None:
                raise click.UsageError(f"--url is not allowed: {why}.")
            command(**options)

        return load_options(without_url, refused_url_option)  # type: ignore[return-value]

    return decorate


def workers_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--workers",
        type=click.IntRange(2, 50),
        default=default,
        show_default=True,
        help="Worker processes.",
    )


def campaign_options(command: F) -> F:
    for option in reversed(
        (
            click.option(
                "--points",
                type=click.IntRange(1),
                help="Number of points; default: as time allows.",
            ),
            click.option(
                "--budget",
                metavar="SPAN",
                callback=parse_duration,
                help="Time limit: 90, 90s, 10m. Without --points, 60 s.",
            ),
            click.option("--seed", type=click.IntRange(0), help="Seed of the order of points."),
            click.option(
                "--path", "paths", multiple=True, metavar="NAME", help="Only this path; repeatable."
            ),
            click.option(
                "--at-once", type=click.IntRange(1, 100), help="Number of concurrent processes."
            ),
            ledger_option,
            first_option,
            keep_option,
        )
    ):
        command = option(command)
    return json_option(with_database_options(command, campaign_url_option))
