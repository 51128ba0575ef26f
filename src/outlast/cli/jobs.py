"""Listing jobs: `outlast jobs` and `outlast dead`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from ..model.lifecycle import State
from ..ops.operation import Op
from ..ops.report import clock
from ..ops.wait_report import WaitRecord, current_waits
from .database_options import json_option, with_client
from .output import print_json, print_table, shorten

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..model.job import Job

F = TypeVar("F", bound=Callable[..., object])


class JobFilterOptions(TypedDict):
    """The values of `filter_options`."""

    queue: str | None
    task: str | None
    tenant: str | None


class JobPageOptions(JobFilterOptions):
    """Those, and the values of `page_options`."""

    limit: int
    before: str | None


def filter_options(command: F) -> F:
    """Add the filters `--queue`, `--task` and `--tenant`."""
    for name in ("tenant", "task", "queue"):
        command = click.option(f"--{name}", metavar="NAME", help=f"Only this {name}.")(command)
    return command


def page_options(command: F) -> F:
    """Add `--limit` and `--before`, for paging."""
    command = click.option(
        "--before", metavar="ID", help="Continue after this job, the last of the previous page."
    )(command)
    return click.option(
        "--limit",
        type=click.IntRange(1, 100_000),
        default=50,
        show_default=True,
        help="Maximum number of jobs.",
    )(command)


@click.command(epilog="Example: outlast jobs --state running --queue mail --limit 20")
@click.option(
    "--state", type=click.Choice([str(state) for state in State]), help="Only this state."
)
@filter_options
@page_options
@json_option
@with_client
def jobs(ol: Outlast, as_json: bool, state: str | None, **chosen: Unpack[JobPageOptions]) -> None:
    """List jobs, newest first."""
    found = ol.jobs(state=state, **chosen)
    waits, now = ol.store.run(_waits, found)
    if as_json:
        fields = {id: {"waiting": wait.as_json()} for id, wait in waits.items()}
        print_json([job.as_json() | fields.get(job.id, {}) for job in found])
        return
    print_table(
        ["id", "task", "queue", "state", "attempt#", "created", "run at", "worker"],
        (
            [job.id, job.task, job.queue, _state(job, waits.get(job.id), now), job.attempt,
             job.created_at, job.run_at, job.worker]
            for job in found
        ),
        none="No matching jobs.",
    )  # fmt: skip


def _waits(jobs: Sequence[Job]) -> Op[tuple[dict[str, WaitRecord], float]]:
    return (yield from current_waits(jobs)), (yield from clock())


def _state(job: Job, wait: WaitRecord | None, now: float) -> str:
    if wait is not None:
        return f"{job.state}: {wait.summary(now)}"
    return f"{job.state} (partly unreadable)" if job.unreadable else str(job.state)


@click.command(epilog="Example: outlast dead --task send_mail --json")
@filter_options
@page_options
@json_option
@with_client
def dead(ol: Outlast, as_json: bool, **chosen: Unpack[JobPageOptions]) -> None:
    """List the dead jobs, newest first, with their reasons.

    They are stored until an operator acts: `outlast retry` runs them again.
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
             shorten(reason(job.error))]
            for job in found
        ),
        none="No dead jobs.",
    )  # fmt: skip
