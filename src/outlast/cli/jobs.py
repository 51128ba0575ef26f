"""Listing jobs: `outlast jobs` and `outlast dead`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..model.lifecycle import State
from .places import connected, json_option
from .show import print_json, print_table, short

if TYPE_CHECKING:
    from ..client import Outlast
    from ..model.job import Job

F = TypeVar("F", bound=Callable[..., Any])


def filters(command: F) -> F:
    """`--queue`, `--task` and `--tenant`: which jobs."""
    for name in ("tenant", "task", "queue"):
        command = click.option(f"--{name}", metavar="NAME", help=f"Only of this {name}.")(command)
    return command


def pages(command: F) -> F:
    """`--limit` and `--before`: how many, and where to go on."""
    command = click.option(
        "--before", metavar="ID", help="Go on after this job: the last one of the page before."
    )(command)
    return click.option(
        "--limit",
        type=click.IntRange(1, 100_000),
        default=50,
        show_default=True,
        help="At most so many.",
    )(command)


@click.command(epilog="Example: outlast jobs --state running --queue mail --limit 20")
@click.option("--state", type=click.Choice([str(state) for state in State]), help="Only these.")
@filters
@pages
@json_option
@connected
def jobs(ol: Outlast, as_json: bool, **chosen: Any) -> None:
    """List jobs, newest first."""
    found = ol.jobs(**chosen)
    if as_json:
        print_json(found)
        return
    print_table(
        ["id", "task", "queue", "state", "attempt#", "created", "run at", "worker"],
        (
            [job.id, job.task, job.queue, _state(job), job.attempt, job.created_at, job.run_at,
             job.worker]
            for job in found
        ),
        none="No job fits.",
    )  # fmt: skip


def _state(job: Job) -> str:
    return f"{job.state} (partly unreadable)" if job.unreadable else str(job.state)


@click.command(epilog="Example: outlast dead --task send_mail --json")
@filters
@pages
@json_option
@connected
def dead(ol: Outlast, as_json: bool, **chosen: Any) -> None:
    """List the jobs that gave up, newest first, with their reasons.

    They are kept until someone acts: `outlast retry` gives them a new life.
    """
    from ..model.outcome import reason

    found = ol.jobs(state="dead", **chosen)
    if as_json:
        print_json(found)
        return
    print_table(
        ["id", "task", "queue", "died", "failures#", "crashes#", "reason"],
        (
            [job.id, job.task, job.queue, job.finished_at, job.failures, job.crashes,
             short(reason(job.error))]
            for job in found
        ),
        none="No job is dead.",
    )  # fmt: skip
