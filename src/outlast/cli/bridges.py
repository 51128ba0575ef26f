"""Bridges to brokers: `outlast outboxes`, `outlast sources`, and `outlast source NAME APP`."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

import click

from ..model.humanize import format_duration
from .apps import find_app
from .database_options import blobs_option, json_option, with_client, with_database_options
from .errors import CommandFailed, printable
from .output import ago, print_json, print_table
from .process_options import log_options

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..ops.bridges import BridgeState

log = logging.getLogger("outlast.bridges")

OUTBOX_COLUMNS = ["outbox", "", "waiting#", "running#", "dead#", "oldest ready#", "sink"]
SOURCE_COLUMNS = [
    "source", "", "lag#", "received#", "new#", "undecodable#", "last message", "task", "from"
]  # fmt: skip
SILENT_AFTER_S = 60.0  # without a report for so long, a source counts as not running


@click.command(epilog="Example: outlast outboxes --json")
@json_option
@with_client
def outboxes(ol: Outlast, as_json: bool) -> None:
    """List the outboxes: messages that wait, run and are dead, and whether the sink is down."""
    found = ol.outboxes()
    if as_json:
        print_json([one.as_json() for one in found])
        return
    print_table(OUTBOX_COLUMNS, map(_outbox_row, found), none="No outboxes.")
    for one in found:
        for reason in one.breakers:
            click.echo(printable(f"{one.name} is down: {reason}."))


@click.command(epilog="Example: outlast sources --json")
@json_option
@with_client
def sources(ol: Outlast, as_json: bool) -> None:
    """List the sources: messages at the broker, received, new and undecodable, and errors."""
    found = ol.sources()
    if as_json:
        print_json([one.as_json() for one in found])
        return
    print_table(SOURCE_COLUMNS, map(_source_row, found), none="No sources.")
    for one in found:
        if one.error:
            click.echo(printable(f"{one.name}: {one.error}"))


@click.command(epilog="Example: outlast source mail shop.tasks:ol")
@click.argument("name")
@click.argument("app")
@log_options
@blobs_option
@with_database_options
@click.pass_context
def source(ctx: click.Context, /, name: str, app: str, **given: str | None) -> None:
    """Receive messages from source NAME of APP (module:attr) until stopped, and run no jobs.

    Workers receive from all sources of their app, unless they have --no-sources.
    """
    from ..worker.logs import set_up, tear_down

    set_up(str(given["log_level"]), str(given["log_format"]))
    ctx.call_on_close(tear_down)
    ol = find_app(app, given["url"], given["schema"], given["blobs"])
    if name not in ol.declared_sources:
        known = ", ".join(sorted(ol.declared_sources)) or "none"
        raise CommandFailed(f"{app} declares no source {name}; there are: {known}.")
    asyncio.run(_receive(ol, name))


async def _receive(ol: Outlast, name: str) -> None:
    """Receive messages until SIGTERM or SIGINT."""
    from ..bridges.source_loop import SourceLoop

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    loop = SourceLoop(ol.declared_sources[name], ol._areceive_jobs)
    await loop.start()
    log.info("source %s: receiving from %r", name, loop.inbox.source)
    try:
        await stopped.wait()
    finally:
        await loop.stop()
        await loop.aclose()
        await ol.aclose()
    log.info("source %s: stopped; received %d", name, loop.totals["received"])


def _outbox_row(one: BridgeState) -> list[object]:
    marks = ["paused"] * one.paused + ["down"] * bool(one.breakers)
    waiting = sum(one.counts.get(state, 0) for state in ("ready", "scheduled", "waiting"))
    return [
        one.name,
        ", ".join(marks),
        waiting,
        one.counts.get("running", 0),
        one.counts.get("dead", 0),
        None if one.oldest is None else format_duration(one.oldest),
        one.broker,
    ]


def _source_row(one: BridgeState) -> list[object]:
    silent = one.silent_for > SILENT_AFTER_S
    return [
        one.name,
        "error" if one.error else f"silent for {format_duration(one.silent_for)}" * silent,
        one.lag,
        one.received,
        one.stored,
        one.undecodable,
        None if one.message_at is None else ago(one.message_ago),
        one.task,
        one.broker,
    ]
