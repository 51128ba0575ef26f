"""Bringing the tables up to this release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .places import connected, json_option
from .show import print_json

if TYPE_CHECKING:
    from ..client import Outlast


@click.command(epilog="Example: outlast migrate --url postgresql://db.example/shop")
@json_option
@connected
def migrate(ol: Outlast, as_json: bool) -> None:
    """Create our tables, or bring them up to this release.

    Workers may go on meanwhile. Two that migrate at once do it once.
    """
    from ..ops.report import schema_version

    applied = ol.migrate()
    version, _ = ol.store.run(schema_version)
    if as_json:
        print_json({"applied": applied, "version": version})
    elif applied:
        click.echo(f"Migrated {ol.store.address} to version {version}.")
    else:
        click.echo(f"{ol.store.address} is at version {version}: nothing to do.")
