"""Who works: `outlast workers`."""

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
