"""Problems of an installation, with advice: `outlast doctor`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ..model.errors import CorruptDatabase, NoDatabase, SchemaMismatch, StoreError, Unsupported
from ..model.humanize import pluralize
from ..ops.doctor.checks import examine
from ..ops.doctor.database import HostFacts
from ..ops.doctor.findings import Finding
from ..ops.report import clock
from .database_options import json_option, with_client
from .errors import error_message, one_line
from .output import print_json

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..store import Store


@click.command(
    epilog="""
    Exit code 0: no problems (notes are possible). 1: problems.

    Example: outlast doctor --json
    """
)
@json_option
@with_client
def doctor(ol: Outlast, as_json: bool) -> None:
    """Find problems that keep jobs from running, and advise how to fix them."""
    found = run_checks(ol.store)
    if as_json:
        print_json(found)
    else:
        print_findings(found)
        problems = sum(finding.problem for finding in found)
        click.echo(
            f"{ol.store.address}: {pluralize(problems, 'problem') if problems else 'healthy'}."
        )
    if any(finding.problem for finding in found):
        click.get_current_context().exit(1)


def run_checks(store: Store) -> list[Finding]:
    """The findings; an unusable database is a finding, too."""
    try:
        store.ready(create=False)
        return store.run(examine, host_facts(store))
    except NoDatabase as error:
        return [Finding("missing", error_message(error), "Check the URL, or run outlast migrate.")]
    except CorruptDatabase as error:
        return [Finding("corrupt", error_message(error), "Restore a backup; jobs may be lost.")]
    except Unsupported as error:
        return [Finding("unsupported", error_message(error), "Use another database.")]
    except SchemaMismatch as error:
        return [
            Finding("unmigrated", error_message(error), "Run outlast migrate, or upgrade outlast.")
        ]
    except StoreError as error:
        advice = "Check that the database runs, the URL is right, and this user has access."
        return [Finding("unreachable", error_message(error), advice)]


def host_facts(store: Store) -> HostFacts:
    from ..store.dialects import SQLITE
    from ..store.schema import latest
    from ..store.sqlite.filesystem import file_system

    if store.address.dialect == SQLITE:
        import sqlite3

        assert store.address.path is not None
        return HostFacts(
            latest(),
            sqlite=sqlite3.sqlite_version_info,
            file_system=file_system(store.address.path),
            confirm_dead=store.confirm_dead,
            confirm_locked=store.confirm_locked,
        )
    pooled = bool(getattr(store, "pooled", False))
    ahead, locked = clock_skew(store), store.confirm_locked
    return HostFacts(latest(), pooled=pooled, clock=ahead, confirm_locked=locked)


def clock_skew(store: Store) -> float:
    """The least number of seconds that the database's clock is ahead of ours, which is read before
    and after the query."""
    before = time.time()
    now = store.run(clock)
    after = time.time()
    return min(0.0, now - before) or max(0.0, now - after)


def print_findings(found: list[Finding]) -> None:
    for finding in found:
        mark = click.style("✗", fg="red") if finding.problem else click.style("·", dim=True)
        click.echo(f"{mark} {click.style(finding.name, bold=True)}: {one_line(finding.sentence)}")
        click.echo(f"  {one_line(finding.advice)}\n")
