"""Schema migrations: `outlast migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .database_options import json_option, with_client
from .output import print_json

if TYPE_CHECKING:
    from ..client.client import Outlast


@click.command(epilog="Example: outlast migrate --url postgresql://db.example/shop")
@json_option
@with_client
def migrate(ol: Outlast, as_json: bool) -> None:
    """Create Outlast's tables, or migrate them to this release.

    Workers may keep running. Safe to run concurrently.
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
