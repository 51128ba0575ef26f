"""What people do to jobs: `outlast cancel` and `outlast retry`. Who did it is on record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import JobNotFound, StoreError, TooLate
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


@click.command(epilog="Example: outlast cancel 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", default="", metavar="TEXT", help="Kept with the job.")
@json_option
@connected
def cancel(ol: Outlast, ids: Sequence[str], reason: str, as_json: bool) -> None:
    """Cancel queued jobs; ask running ones to stop.

    Cancelling twice is one cancel. Exit code 1: a job was not found, or had already ended another
    way; the others are cancelled all the same.
    """
    _report(_each(ids, lambda id: ol.cancel(id, reason)), as_json, "asked to stop")


@click.command(
    epilog="""
    \b
    Examples: outlast retry 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f
              outlast retry --all --task send_mail --yes
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
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
@json_option
@connected
def retry(
    ol: Outlast, ids: Sequence[str], every: bool, yes: bool, as_json: bool, **chosen: Any
) -> None:
    """Give dead or cancelled jobs a new life, all budgets full.

    A job that is queued or running already needs nothing. With --all, the number is shown first.
    """
    if every == bool(ids):
        raise click.UsageError("Say which jobs: either their ids, or --all.")
    if every:
        return _retry_all(ol, chosen, yes, as_json)
    _given_alone(chosen)
    return _report(_each(ids, ol.retry), as_json, "is running already")


def _given_alone(chosen: dict[str, Any]) -> None:
    named = [name for name in ("queue", "task", "tenant") if chosen[name] is not None]
    if named:
        raise click.UsageError(f"--{named[0]} goes with --all, not with ids.")


def _retry_all(ol: Outlast, chosen: dict[str, Any], yes: bool, as_json: bool) -> None:
    from ..client import chosen as checked
    from ..ops.report import count as count_jobs

    found = ol.store.run(count_jobs, checked(**chosen))
    click.echo(f"{count(found, chosen['state'] + ' job')} to be retried.", err=True)
    if found and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("Nobody is here to be asked: say --yes.")
        click.confirm("Go on?", abort=True, err=True)
    retried = ol.retry_all(**chosen) if found else 0
    if as_json:
        print_json({"found": found, "retried": retried})
    else:
        click.echo(f"Retried {count(retried, 'job')}.")


def _each(ids: Sequence[str], act: Callable[[str], Job]) -> list[Answer]:
    """One by one: what is wrong with one id keeps no other from being dealt with."""
    answers: list[Answer] = []
    for number, id in enumerate(ids):
        try:
            answers.append(Answer(id, act(id)))
        except (JobNotFound, TooLate) as error:
            answers.append(Answer(id, error=error))
        except StoreError as error:  # the rest would fare no better
            return answers + [Answer(left, error=error) for left in ids[number:]]
    return answers


def _report(answers: list[Answer], as_json: bool, running: str) -> None:
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
