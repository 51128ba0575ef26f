"""Run a campaign of `outlast verify` and print its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import InvalidOption
from ..model.humanize import pluralize
from .errors import printable
from .output import console, print_json, table

if TYPE_CHECKING:
    from ..verify.campaigns.campaign import Campaign
    from ..verify.results import CampaignResults

MAX_SHOWN_VIOLATIONS = 20  # violations printed in full


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


def run_load_campaign(
    kind: Callable[..., Campaign],
    options: dict[str, object],
    rerun_options: str,
    **renamed: str | None,
) -> None:
    options["at_once"] = options.pop("workers")
    for name, option in renamed.items():
        value = options.pop(option or name)
        if option:
            options[name] = value
    options.setdefault("points", None)
    options.setdefault("budget", None)
    run_campaign(kind, options, _print_counts, rerun_options)


def _print_counts(figures: CampaignResults) -> None:
    """Print the counts, and the measured times with a histogram."""
    counted = [
        [path, what.replace("_", " "), row.counts[what]]
        for path, row in figures.rows.items()
        for what in figures.columns
        if what in row.counts
    ]
    console().print(table(["where", "what", "times#"], counted))
    for name, values in figures.spans.items():
        _print_distribution(name, values)


def _print_distribution(name: str, values: list[float]) -> None:
    from ..verify.distribution import Distribution

    spread = Distribution(values)
    percentiles = spread.as_json()
    numbers = "  ".join(f"{what} {percentiles[what]} s" for what in ("p50", "p90", "p99", "max"))
    click.echo(f"\n{name}: n {len(spread)}  {numbers}")
    for line in spread.plot():
        click.echo(line)
