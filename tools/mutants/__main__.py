"""The command line of the mutation tests: `python -m tools.mutants`, `make mutants`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from outlast.cli.database_options import json_option, with_database_options
from outlast.cli.errors import errors_as_messages, printable
from outlast.cli.output import console, print_json, table
from outlast.cli.verify_options import ledger_option
from outlast.model.humanize import pluralize
from outlast.store.address import parse
from outlast.store.dialects import POSTGRES
from outlast.verify.results import add_line

from . import MUTANTS
from .mutation import Mutant, RunOptions
from .mutation_run import MutantResult, MutationResults, MutationRun

MAX_VIOLATION_WIDTH = 90  # characters in the table


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
    Mutants of SQLite, or of both stores, run on temporary files; those of PostgreSQL need its
    --url, and are skipped without one. First, the unchanged copy has to pass the same points.

    Exit code 0: every mutant was caught. 1: one survived, or there was none to test.

    \b
    Examples: python -m tools.mutants
              python -m tools.mutants --url postgresql://localhost/test --at-once 4
              python -m tools.mutants --only finish-without-fence
    """,
)
@with_database_options
@click.option("--only", multiple=True, metavar="NAME", help="Only this mutant; repeatable.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Order of points."
)
@click.option(
    "--at-once", type=click.IntRange(1, 32), default=3, show_default=True, help="Concurrent runs."
)
@ledger_option
@json_option
def main(only: tuple[str, ...], ledger: Path | None, as_json: bool, **given: Any) -> None:
    """Break the protocol in a copy, in every known way, and check that campaigns notice."""
    with errors_as_messages():
        options = RunOptions(given["seed"], _postgres(given["url"]), given["schema"])
        results = MutationRun(_chosen(only), options, given["at_once"], _report).run()
        if ledger is not None:
            add_line(ledger, results.summary())
    if as_json:
        print_json({**results.summary(), "hunts": results.results})
    else:
        _print_results(results)
    if results.interrupted:
        click.get_current_context().exit(130)
    if not results.passed:
        click.get_current_context().exit(1)


def _report(line: str) -> None:
    click.echo(printable(line), err=True)


def _chosen(only: tuple[str, ...]) -> list[Mutant]:
    known = {mutant.name: mutant for mutant in MUTANTS}
    for name in only:
        if name not in known:
            raise click.UsageError(f"no mutant {name!r}; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(only or known)]


def _postgres(url: str | None) -> str | None:
    """The URL, if it is one of PostgreSQL."""
    url = url or os.environ.get("OUTLAST_URL")
    return url if url and parse(url).dialect == POSTGRES else None


def _print_results(results: MutationResults) -> None:
    rows = [
        [result.mutant, result.campaign, result.store, result.points, f"{result.seconds:.0f} s",
         _caught_by(result)]
        for result in results.results
    ]  # fmt: skip
    console().print(table(["mutant", "campaign", "store", "points#", "took#", "caught by"], rows))
    summary = results.summary()
    ended = " (interrupted)" if results.interrupted else ""
    click.echo(
        f"\n{summary['caught']} of {pluralize(summary['mutants'], 'mutant')} caught in"
        f" {results.seconds:.0f} s{ended}."
    )
    if results.left_out:
        click.echo(f"Skipped: {results.left_out} that need PostgreSQL. Pass its --url.")
    for result in results.survivors:
        click.echo(f"\n{click.style(result.mutant, bold=True)} survived: {result.breaks}.")
        click.echo(
            f"  {printable(result.told)}" if result.told else f"  {result.campaign} found nothing."
        )
    for wrong in results.unsound:
        click.echo(f"\nViolation without a mutant: {printable(wrong)}")


def _caught_by(result: MutantResult) -> str:
    if not result.caught:
        return "SURVIVED"
    told = " ".join(printable(result.told).split())
    if len(told) <= MAX_VIOLATION_WIDTH:
        return told
    return f"{told[: MAX_VIOLATION_WIDTH - 1]}…"


if __name__ == "__main__":
    main(prog_name="python -m tools.mutants")
