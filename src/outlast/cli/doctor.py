"""What is wrong here, and what to do: `outlast doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..model.errors import SchemaMismatch, StoreError
from ..model.words import count
from ..ops.doctor import Finding, Surroundings, examine
from .failing import safe, sentence
from .places import connected, json_option
from .show import print_json

if TYPE_CHECKING:
    from ..client import Outlast
    from ..store import Store


@click.command(
    epilog="""
    Exit code 0: nothing is wrong (there may be notes). 1: there are problems.

    Example: outlast doctor --json
    """
)
@json_option
@connected
def doctor(ol: Outlast, as_json: bool) -> None:
    """Look for what keeps jobs from running, and say what to do about it."""
    found = diagnose(ol.store)
    if as_json:
        print_json(found)
    else:
        print_findings(found)
        problems = sum(finding.problem for finding in found)
        click.echo(f"{ol.store.address}: {count(problems, 'problem') if problems else 'all well'}.")
    if any(finding.problem for finding in found):
        click.get_current_context().exit(1)


def diagnose(store: Store) -> list[Finding]:
    """What was found; a database that cannot be asked is a finding too."""
    try:
        store.ready()
        return store.run(examine, surroundings(store))
    except SchemaMismatch as error:
        return [Finding("unmigrated", sentence(error), "Run outlast migrate, or upgrade outlast.")]
    except StoreError as error:
        advice = "See that the database runs, that the URL is right, and that this user may use it."
        return [Finding("unreachable", sentence(error), advice)]


def surroundings(store: Store) -> Surroundings:
    from ..store.schema import latest
    from ..store.statements import SQLITE

    version = None
    if store.address.dialect == SQLITE:
        import sqlite3

        version = sqlite3.sqlite_version_info
    return Surroundings(latest(), version, bool(getattr(store, "pooled", False)))


def print_findings(found: list[Finding]) -> None:
    for finding in found:
        mark = click.style("✗", fg="red") if finding.problem else click.style("·", dim=True)
        click.echo(f"{mark} {click.style(finding.name, bold=True)}: {safe(finding.sentence)}")
        click.echo(f"  {safe(finding.advice)}\n")
