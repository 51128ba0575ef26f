"""The tester is tested: `outlast verify mutants`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..model.words import count
from .failing import safe
from .places import json_option, placed
from .show import console, print_json, table

if TYPE_CHECKING:
    from ..verify.hunting import Catch, Report
    from ..verify.mutation import Mutant

WIDEST = 90  # characters of a violation in the table


@click.command(
    epilog="""
    What concerns SQLite, or both, is hunted in temporary files; what concerns PostgreSQL needs its
    --url, and is left out without one. First the unbroken copy has to pass the same points.

    Exit code 0: each was caught. 1: one got away, or there was none to hunt.

    \b
    Examples: outlast verify mutants
              outlast verify mutants --url postgresql://localhost/test --at-once 4
              outlast verify mutants --only finish-without-fence
    """
)
@placed
@click.option("--only", multiple=True, metavar="NAME", help="Only this mutant; repeatable.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="The order of points."
)
@click.option(
    "--at-once", type=click.IntRange(1, 32), default=3, show_default=True, help="Hunts at once."
)
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append one line of JSON with the figures of this run.",
)
@json_option
def mutants(only: tuple[str, ...], ledger: Path | None, as_json: bool, **given: Any) -> None:
    """Break the protocol in a copy, in every way we know, and see each breakage noticed."""
    from ..verify.figures import add_line
    from ..verify.hunting import Hunts
    from ..verify.mutation import Where

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
    click.echo(safe(line), err=True)


def _chosen(only: tuple[str, ...]) -> list[Mutant]:
    from ..verify.mutants import MUTANTS

    known = {mutant.name: mutant for mutant in MUTANTS}
    for name in only:
        if name not in known:
            raise click.UsageError(f"no mutant is called {name!r}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(only or known)]


def _postgres(url: str | None) -> str | None:
    """The address, if it is one of a PostgreSQL."""
    from ..store.address import parse
    from ..store.statements import POSTGRES

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
        f"\n{summary['caught']} of {count(summary['mutants'], 'mutant')} caught in"
        f" {report.seconds:.0f} s{ended}."
    )
    if report.left_out:
        click.echo(f"Left out: {report.left_out} that need a PostgreSQL. Give its --url.")
    for catch in report.survivors:
        click.echo(f"\n{click.style(catch.mutant, bold=True)} survived: {catch.breaks}.")
        click.echo(f"  {safe(catch.told)}" if catch.told else f"  {catch.campaign} saw nothing.")
    for wrong in report.unsound:
        click.echo(f"\nWithout a mutant, and wrong: {safe(wrong)}")


def _how(catch: Catch) -> str:
    if not catch.caught:
        return "SURVIVED"
    told = " ".join(safe(catch.told).split())
    return told if len(told) <= WIDEST else f"{told[: WIDEST - 1]}…"
