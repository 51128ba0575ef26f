"""What people do to jobs: `outlast cancel`, `retry` and `reclaim`. Who did it is on record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.bulk import BulkCount, explained
from ..model.errors import JobNotFound, StoreError, TooEarly, TooLate
from ..model.job import Job
from ..model.lifecycle import State
from ..model.words import count
from .failing import sentence
from .jobs import filters
from .places import connected, json_option
from .show import plain, print_json

if TYPE_CHECKING:
    from ..client import Outlast


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one wish."""

    id: str
    job: Job | None = None
    error: Exception | None = None

    def as_json(self) -> dict[str, Any]:
        error = self.error and {"type": type(self.error).__name__, "message": sentence(self.error)}
        return {"id": self.id, "ok": error is None, "job": plain(self.job), "error": error}


flow_option = click.option(
    "--flow", metavar="ID", help="All of a flow, by its id or that of a job in it."
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
@click.option("--reason", default="", metavar="TEXT", help="Kept with the job, or the flow.")
@json_option
@connected
def cancel(ol: Outlast, ids: Sequence[str], flow: str | None, reason: str, as_json: bool) -> None:
    """Cancel queued jobs, or a whole flow; ask what runs to stop.

    Cancelling twice is one cancel. Exit code 1: a job was not found, or had already ended another
    way; the others are cancelled all the same.
    """
    if bool(flow) == bool(ids):
        raise click.UsageError("Say what to cancel: either jobs by their ids, or --flow.")
    if flow:
        return _cancel_flow(ol, flow, reason, as_json)
    return tell_each(each(ids, lambda id: ol.cancel(id, reason)), as_json, "asked to stop")


@click.command(
    epilog="""
    \b
    Examples: outlast retry 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
              outlast retry --all --task send_mail --yes
              outlast retry --flow 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
    """
)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "every", is_flag=True, help="Every job that fits, instead of single ones.")
@click.option(
    "--state",
    type=click.Choice([str(State.DEAD), str(State.CANCELLED)]),
    default=str(State.DEAD),
    show_default=True,
    help="With --all: which.",
)
@filters
@flow_option
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
@json_option
@connected
def retry(
    ol: Outlast,
    ids: Sequence[str],
    every: bool,
    flow: str | None,
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Give dead or cancelled jobs a new life, all budgets full.

    A job that is queued or running already needs nothing. With --all, the number is shown first.
    With --flow: what is dead or cancelled in it; what has succeeded is not run again.
    """
    if [every, bool(ids), bool(flow)].count(True) != 1:
        raise click.UsageError("Say which jobs: either their ids, or --all, or --flow.")
    if every:
        return _retry_all(ol, chosen, yes, as_json)
    _given_alone(chosen)
    if flow:
        return _retry_flow(ol, flow, as_json)
    return tell_each(each(ids, ol.retry), as_json, "is running already")


@click.command(
    epilog="""
    \b
    Examples: outlast reclaim 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
              outlast reclaim --worker 3f0c9a72d1b84e55
    """
)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--worker", metavar="ID", help="All that this worker runs.")
@json_option
@connected
def reclaim(ol: Outlast, ids: Sequence[str], worker: str | None, as_json: bool) -> None:
    """Take running jobs from their workers, and put them back unspent.

    For a handler that hangs in a worker which lives: what died is taken back without being asked.
    The old owner is told, and whatever it still does with the job counts for nothing; drain it
    first, and another worker gets the job. A queued job needs nothing.
    """
    from ..ops.seize import held_by

    if bool(worker) == bool(ids):
        raise click.UsageError("Say which jobs: either their ids, or --worker.")
    named = ids or ol.store.run(held_by, str(worker))
    return tell_each(each(named, ol.reclaim), as_json, "is running again")


def _given_alone(chosen: dict[str, Any]) -> None:
    named = [name for name in ("queue", "task", "tenant") if chosen[name] is not None]
    if named:
        raise click.UsageError(f"--{named[0]} goes with --all, not with ids or --flow.")


def _retry_all(ol: Outlast, chosen: dict[str, Any], yes: bool, as_json: bool) -> None:
    from ..seeing import chosen as checked

    pages = list(ol._pages(checked(**chosen)))
    found = sum(map(len, pages))
    agreed(f"{count(found, chosen['state'] + ' job')} to be retried.", found, yes)
    tell_count("Retried", found, ol._retry_pages(pages, chosen["state"]), as_json)


def tell_count(did: str, found: int, done: BulkCount, as_json: bool) -> None:
    """How many of those that were announced were changed, and why not the others."""
    if as_json:
        print_json({"found": found, did_key(did): int(done)} | done.as_json())
    else:
        click.echo(" ".join(filter(None, (f"{did} {count(done, 'job')}.", explained(found, done)))))


def did_key(did: str) -> str:
    return {"Retried": "retried", "Removed": "purged"}[did]


def agreed(what: str, found: int, yes: bool) -> None:
    """Says what will be done to many, and asks unless it was answered before."""
    click.echo(what, err=True)
    if found and not yes:
        if not at_terminal():
            raise click.UsageError("Nobody is here to be asked: say --yes.")
        click.confirm("Go on?", abort=True, err=True)


def at_terminal() -> bool:
    return sys.stdin.isatty()


def _cancel_flow(ol: Outlast, id: str, reason: str, as_json: bool) -> None:
    from .flow import named

    flow = ol.cancel_flow(named(ol, id), reason)
    if as_json:
        return print_json(flow.as_json())
    running = flow.counts[State.RUNNING]
    asked = f"; {count(running, 'running job')} asked to stop" if running else ""
    return click.echo(f"{flow.id} {flow.state}{asked}")


def _retry_flow(ol: Outlast, id: str, as_json: bool) -> None:
    from .flow import named

    flow = named(ol, id)
    retried = ol.retry_flow(flow)
    if as_json:
        print_json({"flow": flow, "retried": retried})
    else:
        click.echo(f"Retried {count(retried, 'job')} of flow {flow}.")


def each(ids: Sequence[str], act: Callable[[str], Job]) -> list[Answer]:
    """One by one: what is wrong with one id keeps no other from being dealt with."""
    answers: list[Answer] = []
    for number, id in enumerate(ids):
        try:
            answers.append(Answer(id, act(id)))
        except (JobNotFound, TooLate, TooEarly) as error:
            answers.append(Answer(id, error=error))
        except StoreError as error:  # the rest would fare no better
            return answers + [Answer(left, error=error) for left in ids[number:]]
    return answers


def tell_each(answers: list[Answer], as_json: bool, running: str) -> None:
    if as_json:
        print_json([answer.as_json() for answer in answers])
    for answer in answers:
        if answer.error is not None:
            click.echo(f"outlast: {sentence(answer.error)}", err=True)
        elif answer.job is not None and not as_json:
            state = answer.job.state
            click.echo(f"{answer.job.id} {running if state is State.RUNNING else state}")
    if any(answer.error for answer in answers):
        click.get_current_context().exit(1)
