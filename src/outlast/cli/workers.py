"""Who works: `outlast workers`, and `outlast drain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .places import connected, json_option
from .show import ago, plain, print_json, print_table

if TYPE_CHECKING:
    from ..client import Outlast
    from ..ops.report import Worker


@click.command(epilog="Example: outlast workers")
@json_option
@connected
def workers(ol: Outlast, as_json: bool) -> None:
    """List the worker processes and when they were last heard of."""
    found = ol.workers()
    if as_json:
        print_json([{**plain(worker), "alive": worker.alive} for worker in found])
    else:
        print_table(WORKER_COLUMNS, map(worker_row, found), none="No worker is known.")


@click.command(
    epilog="""
    \b
    Examples: outlast drain 3f0c9a72d1b84e55
              outlast drain 3f0c9a72d1b84e55 --undo
    """
)
@click.argument("worker", metavar="WORKER")
@click.option("--undo", is_flag=True, help="Let it claim again.")
@json_option
@connected
def drain(ol: Outlast, worker: str, undo: bool, as_json: bool) -> None:
    """Tell WORKER (an id from `outlast workers`) to claim no more.

    What it runs goes on, and it stays until it is stopped: then nothing is interrupted. It hears of
    it at its next renewal at the latest.
    """
    ol.drain(worker, undo)
    if as_json:
        print_json({"worker": worker, "draining": not undo})
    else:
        click.echo(f"{worker} claims {'again' if undo else 'no more'}.")


WORKER_COLUMNS = [
    "worker", "host", "pid#", "", "running#", "queues", "started", "heard of", "version"
]  # fmt: skip


def worker_row(worker: Worker) -> list[object]:
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
