"""Verification campaigns on your own database: `outlast verify`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..model.errors import InvalidOption
from ..model.humanize import pluralize
from .database_options import campaign_url_option, json_option, with_database_options
from .errors import printable
from .output import console, print_json, table
from .parsing import parse_duration
from .verify_load import (
    clock,
    dbcrash,
    failover,
    flows,
    keep_option,
    lanes,
    ledger_option,
    recovery,
    soak,
)

if TYPE_CHECKING:
    from ..verify.campaigns.campaign import Campaign
    from ..verify.results import CampaignResults

F = TypeVar("F", bound=Callable[..., Any])

MAX_SHOWN_VIOLATIONS = 20  # violations printed in full


@click.group(
    epilog="""
    Each campaign works in its own schemas (or files) in the database of --url, and removes them
    when it ends, also on Ctrl-C; their names begin with that of --schema. Without --url and
    OUTLAST_URL, a temporary SQLite file is used.

    Exit code 0: the guarantees held. 1: they did not; the command that reproduces it is printed.

    Example: outlast verify crash --budget 60
    """
)
def verify() -> None:
    """Verify the guarantees: kill and freeze processes, then check the jobs."""


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
            click.option("--first", is_flag=True, help="Stop at the first violation."),
            keep_option,
        )
    ):
        command = option(command)
    return json_option(with_database_options(command, campaign_url_option))


@verify.command(
    epilog="""
    \b
    Examples: outlast verify crash
              outlast verify crash --url postgresql://localhost/test --budget 10m
              outlast verify crash --path bulk --path worker --seed 7
    """
)
@campaign_options
def crash(**options: Any) -> None:
    """Kill a process before and after every statement of every operation."""
    from ..verify.campaigns.crash import Crash

    run_campaign(Crash, options)


@verify.command(
    epilog="""
    \b
    Examples: outlast verify zombie
              outlast verify zombie --url postgresql://localhost/test --points 2000
    """
)
@campaign_options
def zombie(**options: Any) -> None:
    """Freeze owners until another worker has their jobs: their later writes are rejected."""
    from ..verify.campaigns.zombie import ZombieCampaign

    run_campaign(ZombieCampaign, options)


@verify.command(
    epilog="""
    PostgreSQL only. The connection is not encrypted: it runs through a proxy that reads the
    server's messages.

    \b
    Examples: outlast verify ackloss --url postgresql://localhost/test
              outlast verify ackloss --url postgresql://localhost/test --points 5000 --budget 10m
    """
)
@campaign_options
def ackloss(**options: Any) -> None:
    """Lose the reply to a COMMIT: a retry neither repeats the work nor guesses the outcome."""
    from ..verify.campaigns.ackloss import AckLoss

    run_campaign(AckLoss, options)


@verify.command(
    epilog="""
    PostgreSQL only, and not encrypted, as for ackloss. For this campaign no call may take longer
    than 5 s; for your own calls, the setting `deadline` is the limit.

    \b
    Examples: outlast verify netsplit --url postgresql://localhost/test
              outlast verify netsplit --url postgresql://localhost/test --points 200
    """
)
@campaign_options
def netsplit(**options: Any) -> None:
    """Stall, slow down and break connections: no call outlives its deadline."""
    from ..verify.campaigns.netsplit import NetSplit

    run_campaign(NetSplit, options)


for command in (recovery, flows, lanes, soak, dbcrash, failover, clock):
    verify.add_command(command)


def run_campaign(
    kind: Callable[..., Campaign],
    options: dict[str, Any],
    show: Callable[[CampaignResults], None] | None = None,
    rerun_options: str | None = None,
) -> None:
    from ..verify.campaigns.campaign import CampaignOptions
    from ..verify.progress import CampaignProgress
    from ..verify.results import append_results

    as_json, ledger = options.pop("as_json"), options.pop("ledger")
    with CampaignProgress(options["points"], options["budget"]) as progress:
        try:
            campaign = kind(CampaignOptions(**options), progress)
        except InvalidOption as error:
            raise click.UsageError(str(error)) from error
        campaign.results.rerun_options = rerun_options
        figures = campaign.run()
    if ledger is not None:
        append_results(ledger, figures)
    if as_json:
        print_json(figures.as_json())
    else:
        (show or _print_table)(figures)
        _print_verdict(figures)
    context = click.get_current_context()
    if figures.interrupted:
        context.exit(130)
    if figures.violations or not figures.total(figures.goal):
        context.exit(1)


def _print_table(figures: CampaignResults) -> None:
    columns = ["path", "points#", *(f"{what}#" for what in figures.columns), "violations#"]
    rows = [
        [path, row.points, *(row.counts.get(what, 0) for what in figures.columns), row.violations]
        for path, row in figures.rows.items()
    ]
    console().print(table(columns, rows))


def _print_verdict(figures: CampaignResults) -> None:
    click.echo(f"\n{_summary(figures)}")
    for wrong in figures.violations[:MAX_SHOWN_VIOLATIONS]:
        click.echo(f"\n{click.style(wrong.where, bold=True)}\n  {printable(wrong.message)}")
    if len(figures.violations) > MAX_SHOWN_VIOLATIONS:
        click.echo(f"\n… and {len(figures.violations) - MAX_SHOWN_VIOLATIONS:,} more.")
    if figures.violations:
        click.echo(f"\nReproduce: {figures.reproduction()}")


def _summary(figures: CampaignResults) -> str:
    counts = ", ".join(_count_text(figures.total(what), what) for what in figures.columns)
    rate = figures.total(figures.goal) / max(figures.seconds, 0.001)
    goal = figures.goal.replace("_", " ")
    wrong = pluralize(len(figures.violations), "violation")
    ended = " (interrupted)" if figures.interrupted else ""
    return (
        f"{figures.url}, seed {figures.seed}: {counts}, {figures.jobs:,} jobs in"
        f" {figures.seconds:.0f} s ({rate:.1f} {goal} per second){ended}: {wrong}."
        + "".join(f"\n{name.replace('_', ' ')}: {fact}" for name, fact in figures.facts.items())
    )


def _count_text(number: int, what: str) -> str:
    word = what.replace("_", " ")
    if number == 1:
        word = "crash" if word == "crashes" else word.removesuffix("s")
    return f"{number:,} {word}"
