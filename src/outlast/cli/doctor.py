"""Problems of an installation, with advice: `outlast doctor`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import CorruptDatabase, NoDatabase, SchemaMismatch, StoreError, Unsupported
from ..model.humanize import pluralize
from ..ops.doctor.checks import examine
from ..ops.doctor.database import HostFacts
from ..ops.doctor.findings import Finding
from ..ops.doctor.waits import awaited_signals, kept_step_names
from ..ops.report import clock
from .apps import find_app
from .code_check import code_findings
from .database_options import json_option, open_client, with_database_options
from .errors import error_message, one_line
from .output import print_json
from .progress import ProgressLine

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..model.task import Registry
    from ..store import Store


@click.command(
    epilog="""
    Exit code 0: no problems (notes are possible). 1: problems.

    \b
    Examples: outlast doctor --json
              outlast doctor --app shop.tasks:ol
    """
)
@click.option(
    "--app", metavar="APP", help="Also compare waiting jobs with this code: signals and steps."
)
@json_option
@with_database_options
def doctor(app: str | None, as_json: bool, **database: Any) -> None:
    """Find problems that keep jobs from running, and advise how to fix them."""
    where = database["url"], database["schema"]
    with open_client(*where) if app is None else find_app(app, *where) as ol:
        _examine(ol, app is not None, as_json)


def _examine(ol: Outlast, with_code: bool, as_json: bool) -> None:
    with ProgressLine("Examining the database"):
        found = run_checks(ol.store, ol.registry if with_code else None)
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


def run_checks(store: Store, registry: Registry | None = None) -> list[Finding]:
    """The findings; an unusable database is a finding, too. With the tasks of an app, waiting jobs
    are compared with their code."""
    try:
        store.ready(create=False)
        found = store.run(examine, host_facts(store))
        if registry is not None:
            waits, steps = store.run(awaited_signals), store.run(kept_step_names)
            found += code_findings(waits, steps, registry)
        return sorted(found, key=lambda finding: not finding.problem)
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
    """The minimum number of seconds by which the database's clock is ahead of this machine's, which
    is read before and after the query."""
    before = time.time()
    now = store.run(clock)
    after = time.time()
    return min(0.0, now - before) or max(0.0, now - after)


def print_findings(found: list[Finding]) -> None:
    for finding in found:
        mark = click.style("✗", fg="red") if finding.problem else click.style("·", dim=True)
        click.echo(f"{mark} {click.style(finding.name, bold=True)}: {one_line(finding.sentence)}")
        click.echo(f"  {one_line(finding.advice)}\n")
