"""Schema migrations: `outlast migrate`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..model.humanize import pluralize
from .database_options import json_option, with_client
from .output import print_json
from .progress import ProgressHandler, ProgressLine

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..store.schema import SchemaMigration


@click.command(epilog="Example: outlast migrate --url postgresql://db.example/shop --plan")
@click.option("--plan", is_flag=True, help="Show what would be done; change nothing.")
@json_option
@with_client
def migrate(ol: Outlast, plan: bool, as_json: bool) -> None:
    """Create Outlast's tables, or migrate them to this release.

    Workers may keep running. Safe to run concurrently, and to run again after it was interrupted.
    """
    from ..ops.report import schema_version

    pending = ol.store.pending_migrations()
    if plan:
        _print_plan(ol, pending, as_json)
        return
    with ProgressLine("Migrating") as line, _steps_shown(line):
        applied = ol.migrate()
    version, _ = ol.store.run(schema_version)
    if as_json:
        print_json({"applied": applied, "version": version})
    elif applied:
        click.echo(f"Migrated {ol.store.address} to version {version}.")
    else:
        click.echo(f"{ol.store.address} is at version {version}: nothing to do.")


def _print_plan(ol: Outlast, pending: tuple[SchemaMigration, ...], as_json: bool) -> None:
    if as_json:
        print_json([_as_json(migration) for migration in pending])
        return
    if not pending:
        click.echo(f"{ol.store.address}: nothing to do.")
    for migration in pending:
        steps = migration.steps
        how = f"in {pluralize(len(steps), 'step')}" if steps else "in one transaction"
        click.echo(
            f"Version {migration.version}, {how}; releases that know version"
            f" {migration.compatible_from} or later can work with it."
        )
        for number, step in enumerate(steps, 1):
            click.echo(f"  {number}. {step.kind}: {step.purpose}")


def _as_json(migration: SchemaMigration) -> dict[str, object]:
    steps = [{"kind": step.kind, "purpose": step.purpose} for step in migration.steps]
    oldest = migration.compatible_from
    return {"version": migration.version, "compatible_from": oldest, "steps": steps}


@contextmanager
def _steps_shown(line: ProgressLine) -> Iterator[None]:
    """Show the steps while they run."""
    log, handler = logging.getLogger("outlast.migrate"), ProgressHandler(line)
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
