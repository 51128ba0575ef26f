"""Operator actions on jobs: `outlast cancel`, `retry` and `reclaim`. The actor is recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.bulk_count import BulkCount, explain_difference
from ..model.errors import JobNotFound, StoreError, TooEarly, TooLate
from ..model.humanize import pluralize
from ..model.job import Job
from ..model.lifecycle import State
from .database_options import json_option, with_client
from .errors import advice, error_fields
from .jobs import filter_options
from .output import print_json, to_json
from .progress import ProgressLine, counted_pages

if TYPE_CHECKING:
    from ..client.client import Outlast


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action on one job."""

    id: str
    job: Job | None = None
    error: Exception | None = None

    def as_json(self) -> dict[str, object]:
        error = self.error and error_fields(self.error)
        return {"id": self.id, "ok": error is None, "job": to_json(self.job), "error": error}


flow_option = click.option(
    "--flow", metavar="ID", help="A whole flow, by its id or that of a job in it."
)


@click.command(
    epilog="""
    \b
    Examples: outlast cancel 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
              outlast cancel --flow 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f --reason "wrong month"
    """
)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@flow_option
@click.option("--reason", default="", metavar="TEXT", help="Stored with the job or flow.")
@json_option
@with_client
def cancel(ol: Outlast, ids: Sequence[str], flow: str | None, reason: str, as_json: bool) -> None:
    """Cancel queued jobs, or a whole flow; ask running jobs to stop.

    Idempotent. Exit code 1: a job was not found, or had already ended another way; the others are
    cancelled anyway.
    """
    if bool(flow) == bool(ids):
        raise click.UsageError("Pass either job ids or --flow.")
    if flow:
        return _cancel_flow(ol, flow, reason, as_json)
    return print_results(
        apply_each(ids, lambda id: ol.cancel(id, reason)), as_json, "asked to stop"
    )


@click.command(
    epilog="""
    \b
    Examples: outlast retry 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
              outlast retry --all --task send_mail --yes
              outlast retry --flow 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
    """
)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "every", is_flag=True, help="All matching jobs, instead of ids.")
@click.option(
    "--state",
    type=click.Choice([str(State.DEAD), str(State.CANCELLED)]),
    default=str(State.DEAD),
    show_default=True,
    help="With --all: only this state.",
)
@filter_options
@flow_option
@click.option("--yes", is_flag=True, help="With --all: skip the confirmation.")
@json_option
@with_client
def retry(
    ol: Outlast,
    ids: Sequence[str],
    every: bool,
    flow: str | None,
    yes: bool,
    as_json: bool,
    **chosen: object,
) -> None:
    """Retry dead or cancelled jobs, with full attempt and crash budgets.

    Queued and running jobs stay as they are. With --all, the number of jobs is shown first. With
    --flow, retries its dead and cancelled jobs; succeeded ones do not run again.
    """
    if [every, bool(ids), bool(flow)].count(True) != 1:
        raise click.UsageError("Pass either job ids, --all or --flow.")
    if every:
        return _retry_all(ol, chosen, yes, as_json)
    _refuse_filters(chosen)
    if flow:
        return _retry_flow(ol, flow, as_json)
    return print_results(apply_each(ids, ol.retry), as_json, "is already running")


@click.command(
    epilog="""
    \b
    Examples: outlast reclaim 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
              outlast reclaim --worker 3f0c9a72d1b84e55
    """
)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--worker", metavar="ID", help="All jobs that this worker runs.")
@json_option
@with_client
def reclaim(ol: Outlast, ids: Sequence[str], worker: str | None, as_json: bool) -> None:
    """Reclaim running jobs from their workers, without spending an attempt.

    For a handler that hangs in a live worker; jobs of dead workers are reclaimed automatically. The
    old owner is notified, and its later writes to the job are rejected. Drain it first so that
    another worker gets the job. Queued jobs stay as they are.
    """
    from ..ops.workers import held_by

    if bool(worker) == bool(ids):
        raise click.UsageError("Pass either job ids or --worker.")
    named = ids or ol.store.run(held_by, str(worker))
    return print_results(apply_each(named, ol.reclaim), as_json, "is running again")


def _refuse_filters(chosen: dict[str, object]) -> None:
    named = [name for name in ("queue", "task", "tenant") if chosen[name] is not None]
    if named:
        raise click.UsageError(f"--{named[0]} requires --all; ids and --flow take no filters.")


def _retry_all(ol: Outlast, chosen: dict[str, Any], yes: bool, as_json: bool) -> None:
    from ..client.verb_arguments import job_filter

    which = job_filter(**chosen)
    with ProgressLine("Counting jobs"):
        pages = ol._find_pages(which)
    found = sum(map(len, pages))
    confirm(f"{pluralize(found, chosen['state'] + ' job')} will be retried.", found, yes)
    with ProgressLine("Retried", found) as line:
        done = ol._retry_pages(counted_pages(line, pages), chosen["state"])
    print_count("Retried", found, done, as_json)


def print_count(did: str, found: int, done: BulkCount, as_json: bool) -> None:
    """Print how many of the announced jobs changed, and why the others did not."""
    if as_json:
        print_json({"found": found, count_key(did): int(done)} | done.as_json())
    else:
        click.echo(
            " ".join(
                filter(None, (f"{did} {pluralize(done, 'job')}.", explain_difference(found, done)))
            )
        )


def count_key(did: str) -> str:
    return {"Removed": "purged"}.get(did, did.lower())


def confirm(what: str, found: int, yes: bool) -> None:
    """Print what a bulk action will do, and ask for confirmation unless `--yes` is passed."""
    click.echo(what, err=True)
    if found and not yes:
        if not is_terminal():
            raise click.UsageError("Not a terminal: pass --yes.")
        click.confirm("Continue?", abort=True, err=True)


def is_terminal() -> bool:
    return sys.stdin.isatty()


def _cancel_flow(ol: Outlast, id: str, reason: str, as_json: bool) -> None:
    from .flow import resolve_flow_id

    with ProgressLine("Cancelling the flow"):
        flow = ol.cancel_flow(resolve_flow_id(ol, id), reason)
    if as_json:
        return print_json(flow.as_json())
    running = flow.counts[State.RUNNING]
    stopping = f"; {pluralize(running, 'running job')} asked to stop" if running else ""
    return click.echo(f"{flow.id} {flow.state}{stopping}")


def _retry_flow(ol: Outlast, id: str, as_json: bool) -> None:
    from .flow import resolve_flow_id

    flow = resolve_flow_id(ol, id)
    with ProgressLine("Retrying the flow"):
        retried = ol.retry_flow(flow)
    if as_json:
        print_json({"flow": flow, "retried": retried})
    else:
        click.echo(f"Retried {pluralize(retried, 'job')} of flow {flow}.")


def apply_each(ids: Sequence[str], action: Callable[[str], Job]) -> list[ActionResult]:
    """Apply the action to each job; an error of one does not affect the others."""
    results: list[ActionResult] = []
    with ProgressLine("Done with", len(ids)) as line:
        for number, id in enumerate(ids):
            line.done = number
            try:
                results.append(ActionResult(id, action(id)))
            except (JobNotFound, TooLate, TooEarly) as error:
                results.append(ActionResult(id, error=error))
            except StoreError as error:  # the rest would fail, too
                return results + [ActionResult(left, error=error) for left in ids[number:]]
    return results


def print_results(results: list[ActionResult], as_json: bool, running: str) -> None:
    if as_json:
        print_json([result.as_json() for result in results])
    for result in () if as_json else results:
        if result.error is not None:
            click.echo(f"outlast: {advice(result.error)}", err=True)
        elif result.job is not None:
            state = result.job.state
            click.echo(f"{result.job.id} {running if state is State.RUNNING else state}")
    if any(result.error for result in results):
        click.get_current_context().exit(1)
