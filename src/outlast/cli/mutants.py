"""Mutation tests of the campaigns: `outlast verify mutants`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..model.humanize import pluralize
from .database_options import json_option, with_database_options
from .errors import printable
from .output import console, print_json, table

if TYPE_CHECKING:
    from ..verify.hunting import Catch, Report
    from ..verify.mutation import Mutant

WIDEST = 90  # characters of a violation in the table


@click.command(
    epilog="""
    Mutants of SQLite, or of both stores, run on temporary files; those of PostgreSQL need its
    --url, and are skipped without one. First, the unbroken copy has to pass the same points.

    Exit code 0: every mutant was caught. 1: one survived, or there was none to test.

    \b
    Examples: outlast verify mutants
              outlast verify mutants --url postgresql://localhost/test --at-once 4
              outlast verify mutants --only finish-without-fence
    """
)
@with_database_options
@click.option("--only", multiple=True, metavar="NAME", help="Only this mutant; repeatable.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Order of points."
)
@click.option(
    "--at-once", type=click.IntRange(1, 32), default=3, show_default=True, help="Concurrent runs."
)
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append the figures of this run as one line of JSON.",
)
@json_option
def mutants(only: tuple[str, ...], ledger: Path | None, as_json: bool, **given: Any) -> None:
    """Break the protocol in a copy, in every known way, and check that campaigns notice."""
    from ..verify.hunting import Hunts
    from ..verify.mutation import Where
    from ..verify.results import add_line

    where = Where(given["seed"], _postgres(given["url"]), given["schema"])
    hunts = Hunts(_chosen(only), where, given["at_once"], _tell)
    report = hunts.run()
    if ledger is not None:
        add_line(ledger, report.summary())
    if as_json:
        print_json({**report.summary(), "hunts": report.catches})
    else:
        _show(report)
    if report.interrupted:
        click.get_current_context().exit(130)
    if not report.well:
        click.get_current_context().exit(1)


def _tell(line: str) -> None:
    click.echo(printable(line), err=True)


def _chosen(only: tuple[str, ...]) -> list[Mutant]:
    from ..verify.mutants import MUTANTS

    known = {mutant.name: mutant for mutant in MUTANTS}
    for name in only:
        if name not in known:
            raise click.UsageError(f"no mutant {name!r}; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(only or known)]


def _postgres(url: str | None) -> str | None:
    """The URL, if it is one of PostgreSQL."""
    from ..store.address import parse
    from ..store.dialects import POSTGRES

    url = url or os.environ.get("OUTLAST_URL")
    return url if url and parse(url).dialect == POSTGRES else None


def _show(report: Report) -> None:
    rows = [
        [catch.mutant, catch.campaign, catch.store, catch.points, f"{catch.seconds:.0f} s",
         _how(catch)]
        for catch in report.catches
    ]  # fmt: skip
    console().print(table(["mutant", "campaign", "store", "points#", "took#", "caught by"], rows))
    summary = report.summary()
    ended = " (interrupted)" if report.interrupted else ""
    click.echo(
        f"\n{summary['caught']} of {pluralize(summary['mutants'], 'mutant')} caught in"
        f" {report.seconds:.0f} s{ended}."
    )
    if report.left_out:
        click.echo(f"Skipped: {report.left_out} that need PostgreSQL. Pass its --url.")
    for catch in report.survivors:
        click.echo(f"\n{click.style(catch.mutant, bold=True)} survived: {catch.breaks}.")
        click.echo(
            f"  {printable(catch.told)}" if catch.told else f"  {catch.campaign} found nothing."
        )
    for wrong in report.unsound:
        click.echo(f"\nViolation without a mutant: {printable(wrong)}")


def _how(catch: Catch) -> str:
    if not catch.caught:
        return "SURVIVED"
    told = " ".join(printable(catch.told).split())
    return told if len(told) <= WIDEST else f"{told[: WIDEST - 1]}…"
