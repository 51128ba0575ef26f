"""The proof, on your own database: `outlast verify`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..model.errors import InvalidOption
from ..model.words import count
from .endurance import clock, dbcrash, failover, flows, recovery, soak
from .failing import safe
from .mutants import mutants
from .places import campaign_url_option, json_option, placed
from .show import console, print_json, table
from .values import span

if TYPE_CHECKING:
    from ..verify.campaign import Campaign
    from ..verify.figures import Figures

F = TypeVar("F", bound=Callable[..., Any])

SHOWN = 20  # violations told in full


@click.group(
    epilog="""
    Each campaign works in schemas (or files) of its own in the database of --url, and removes them
    when it ends, also by Ctrl-C; their names begin with that of --schema. Without --url and
    OUTLAST_URL it takes a temporary SQLite file.

    Exit code 0: the promise held. 1: it did not, and the command that shows it again is printed.

    Example: outlast verify crash --budget 60
    """
)
def verify() -> None:
    """Show that the promise holds: kill, freeze, and look at what is left."""


verify.add_command(mutants)


def campaign_options(command: F) -> F:
    for option in reversed(
        (
            click.option(
                "--points", type=click.IntRange(1), help="How many to try; else as time allows."
            ),
            click.option(
                "--budget",
                metavar="SPAN",
                callback=span,
                help="How long it may take: 90, 90s, 10m. Without --points, 60 s.",
            ),
            click.option(
                "--seed", type=click.IntRange(0), help="The order in which points are tried."
            ),
            click.option(
                "--path", "paths", multiple=True, metavar="NAME", help="Only this path; repeatable."
            ),
            click.option(
                "--at-once", type=click.IntRange(1, 100), help="Processes that act at once."
            ),
            click.option(
                "--ledger",
                type=click.Path(dir_okay=False, path_type=Path),
                metavar="FILE",
                help="Append one line of JSON with the figures of this run.",
            ),
            click.option("--first", is_flag=True, help="Stop as soon as something is wrong."),
            click.option("--keep", is_flag=True, help="Leave schemas and files, to look at them."),
        )
    ):
        command = option(command)
    return json_option(placed(command, campaign_url_option))


@verify.command(
    epilog="""
    \b
    Examples: outlast verify crash
              outlast verify crash --url postgresql://localhost/test --budget 10m
              outlast verify crash --path bulk --path worker --seed 7
    """
)
@campaign_options
def crash(**given: Any) -> None:
    """Kill a process before and after every statement of everything that it may be doing."""
    from ..verify.crash import Crash

    run(Crash, given)


@verify.command(
    epilog="""
    \b
    Examples: outlast verify zombie
              outlast verify zombie --url postgresql://localhost/test --points 2000
    """
)
@campaign_options
def zombie(**given: Any) -> None:
    """Freeze owners until somebody else has their jobs: whatever they do then is refused."""
    from ..verify.zombie import Zombies

    run(Zombies, given)


@verify.command(
    epilog="""
    PostgreSQL only. The line to it is not encrypted: it runs through a proxy that has to read what
    the server says.

    \b
    Examples: outlast verify ackloss --url postgresql://localhost/test
              outlast verify ackloss --url postgresql://localhost/test --points 5000 --budget 10m
    """
)
@campaign_options
def ackloss(**given: Any) -> None:
    """Lose the answer to a COMMIT: asking again never does it twice, and never guesses."""
    from ..verify.ackloss import AckLoss

    run(AckLoss, given)


@verify.command(
    epilog="""
    PostgreSQL only, and not encrypted, as for ackloss. For this campaign no call may take longer
    than 5 s; how long your own may take is the setting `deadline`.

    \b
    Examples: outlast verify netsplit --url postgresql://localhost/test
              outlast verify netsplit --url postgresql://localhost/test --points 200
    """
)
@campaign_options
def netsplit(**given: Any) -> None:
    """Silence, slow down and break connections: no call outlives its deadline."""
    from ..verify.netsplit import NetSplit

    run(NetSplit, given)


for command in (recovery, flows, soak, dbcrash, failover, clock):
    verify.add_command(command)


def run(
    kind: Callable[..., Campaign],
    given: dict[str, Any],
    show: Callable[[Figures], None] | None = None,
    again: str | None = None,
) -> None:
    from ..verify.campaign import Wish
    from ..verify.figures import append
    from ..verify.progress import Progress

    as_json, ledger = given.pop("as_json"), given.pop("ledger")
    with Progress(given["points"], given["budget"]) as progress:
        try:
            campaign = kind(Wish(**given), progress)
        except InvalidOption as error:
            raise click.UsageError(str(error)) from error
        campaign.figures.again = again
        figures = campaign.run()
    if ledger is not None:
        append(ledger, figures)
    if as_json:
        print_json(figures.as_json())
    else:
        (show or _table)(figures)
        _conclude(figures)
    context = click.get_current_context()
    if figures.interrupted:
        context.exit(130)
    if figures.wrong or not figures.total(figures.goal):
        context.exit(1)


def _table(figures: Figures) -> None:
    columns = ["path", "points#", *(f"{what}#" for what in figures.columns), "violations#"]
    rows = [
        [path, row.points, *(row.counts.get(what, 0) for what in figures.columns), row.violations]
        for path, row in figures.rows.items()
    ]
    console().print(table(columns, rows))


def _conclude(figures: Figures) -> None:
    click.echo(f"\n{_sentence(figures)}")
    for wrong in figures.wrong[:SHOWN]:
        click.echo(f"\n{click.style(wrong.where, bold=True)}\n  {safe(wrong.told)}")
    if len(figures.wrong) > SHOWN:
        click.echo(f"\n… and {len(figures.wrong) - SHOWN:,} more.")
    if figures.wrong:
        click.echo(f"\nAgain: {figures.reproduction()}")


def _sentence(figures: Figures) -> str:
    counts = ", ".join(_counted(figures.total(what), what) for what in figures.columns)
    rate = figures.total(figures.goal) / max(figures.seconds, 0.001)
    goal = figures.goal.replace("_", " ")
    wrong = count(len(figures.wrong), "violation")
    ended = " (interrupted)" if figures.interrupted else ""
    return (
        f"{figures.url}, seed {figures.seed}: {counts}, {figures.jobs:,} jobs in"
        f" {figures.seconds:.0f} s ({rate:.1f} {goal} a second){ended}: {wrong}."
        + "".join(f"\n{name.replace('_', ' ')}: {fact}" for name, fact in figures.facts.items())
    )


def _counted(number: int, what: str) -> str:
    word = what.replace("_", " ")
    if number == 1:
        word = "crash" if word == "crashes" else word.removesuffix("s")
    return f"{number:,} {word}"
