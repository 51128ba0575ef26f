"""What is wrong here, and what to do: `outlast doctor`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ..model.errors import CorruptDatabase, NoDatabase, SchemaMismatch, StoreError, Unsupported
from ..model.words import count
from ..ops.conditions import Surroundings
from ..ops.doctor import examine
from ..ops.findings import Finding
from ..ops.report import clock
from .failing import one_line, sentence
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
        store.ready(create=False)
        return store.run(examine, surroundings(store))
    except NoDatabase as error:
        return [Finding("missing", sentence(error), "Check the URL, or run outlast migrate.")]
    except CorruptDatabase as error:
        return [Finding("corrupt", sentence(error), "Restore a backup; jobs may be lost.")]
    except Unsupported as error:
        return [Finding("unsupported", sentence(error), "Keep jobs in another database.")]
    except SchemaMismatch as error:
        return [Finding("unmigrated", sentence(error), "Run outlast migrate, or upgrade outlast.")]
    except StoreError as error:
        advice = "See that the database runs, that the URL is right, and that this user may use it."
        return [Finding("unreachable", sentence(error), advice)]


def surroundings(store: Store) -> Surroundings:
    from ..store.filesystem import file_system
    from ..store.schema import latest
    from ..store.statements import SQLITE

    if store.address.dialect == SQLITE:
        import sqlite3

        assert store.address.path is not None
        return Surroundings(
            latest(),
            sqlite=sqlite3.sqlite_version_info,
            file_system=file_system(store.address.path),
            confirm_dead=store.confirm_dead,
            confirm_locked=store.confirm_locked,
        )
    pooled = bool(getattr(store, "pooled", False))
    ahead, locked = clock_difference(store), store.confirm_locked
    return Surroundings(latest(), pooled=pooled, clock=ahead, confirm_locked=locked)


def clock_difference(store: Store) -> float:
    """Seconds that the database is ahead of us, at the least: it answered between two looks at our
    own clock, and may be right anywhere between them."""
    before = time.time()
    now = store.run(clock)
    after = time.time()
    return min(0.0, now - before) or max(0.0, now - after)


def print_findings(found: list[Finding]) -> None:
    for finding in found:
        mark = click.style("✗", fg="red") if finding.problem else click.style("·", dim=True)
        click.echo(f"{mark} {click.style(finding.name, bold=True)}: {one_line(finding.sentence)}")
        click.echo(f"  {one_line(finding.advice)}\n")
