"""Sending a signal to a job: `outlast signal`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from .apps import find_app
from .database_options import json_option, open_client, with_database_options
from .output import print_json
from .parsing import parse_json


@click.command(
    epilog="""
    \b
    Examples: outlast signal 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f approval '{"ok": true}'
              outlast signal 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f paid --key event-17
    """
)
@click.argument("id")
@click.argument("name")
@click.argument("value", default="null", callback=parse_json, metavar="[JSON]")
@click.option("--key", metavar="TEXT", help="Of several signals with one key, the first is kept.")
@click.option("--app", metavar="APP", help="App whose task checks the value.")
@json_option
@with_database_options
def signal(id: str, name: str, value: object, app: str | None, as_json: bool, **given: Any) -> None:
    """Send a signal to a job that waits for it, or will.

    The value is JSON; - reads standard input. Without --app it is stored unchecked; the wait
    validates it. Exit code 1: the job was not found, or has ended.
    """
    with ExitStack() as stack:
        database = given["url"], given["schema"]
        opened = open_client(*database) if app is None else find_app(app, *database)
        sent = stack.enter_context(opened).signal(id, name, value, key=given["key"])
    if as_json:
        print_json({"job": sent.job, "signal": sent.name, "new": sent.new, "woken": sent.woke})
    elif not sent.new:
        click.echo(f"{name}: sent before, with the same key; kept once.")
    else:
        click.echo(f"{name}: {'sent; the job goes on.' if sent.woke else 'kept for the job.'}")
