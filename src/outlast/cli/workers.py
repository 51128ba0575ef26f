"""Worker processes: `outlast workers` and `outlast drain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .database_options import json_option, with_client
from .output import ago, print_json, print_table, to_json

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..ops.report import WorkerInfo


@click.command(epilog="Example: outlast workers")
@json_option
@with_client
def workers(ol: Outlast, as_json: bool) -> None:
    """List the worker processes and their last heartbeats."""
    found = ol.workers()
    if as_json:
        print_json([{**to_json(worker), "alive": worker.alive} for worker in found])
    else:
        print_table(
            WORKER_COLUMNS, map(worker_row, found), none="No workers. Start one: outlast worker APP"
        )


@click.command(
    epilog="""
    \b
    Examples: outlast drain 3f0c9a72d1b84e55
              outlast drain 3f0c9a72d1b84e55 --undo
    """
)
@click.argument("worker", metavar="WORKER")
@click.option("--undo", is_flag=True, help="Let the worker claim again.")
@json_option
@with_client
def drain(ol: Outlast, worker: str, undo: bool, as_json: bool) -> None:
    """Stop WORKER (an id from `outlast workers`) from claiming jobs.

    Its running jobs continue, and the process runs until stopped, which then interrupts nothing.
    The request reaches it at its next renewal at the latest.
    """
    ol.drain(worker, undo)
    if as_json:
        print_json({"worker": worker, "draining": not undo})
    else:
        click.echo(f"{worker} {'claims again' if undo else 'is draining'}.")


WORKER_COLUMNS = [
    "worker", "host", "pid#", "", "running#", "queues", "started", "heartbeat", "version"
]  # fmt: skip


def worker_row(worker: WorkerInfo) -> list[object]:
    return [
        worker.id,
        worker.host,
        worker.pid,
        worker.state if worker.alive else "silent",
        f"{worker.running}/{worker.concurrency}",
        "all" if worker.queues is None else ", ".join(worker.queues),
        worker.started_at,
        ago(worker.silent_for),
        worker.version,
    ]
