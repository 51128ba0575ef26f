"""Campaigns of `outlast verify` with faults under load."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from .verify_options import (
    budget_option,
    enqueue_budget_option,
    first_option,
    load_options,
    own_server_options,
    workers_option,
)
from .verify_run import run_load_campaign

F = TypeVar("F", bound=Callable[..., object])

_clock_option = click.option(
    "--store",
    type=click.Choice(["sqlite", "postgres"]),
    default="sqlite",
    show_default=True,
    help="The clock that steps: that of all processes on a machine, or that of a server.",
)


def _points_option(noun: str) -> Callable[[F], F]:
    text = f"Number of {noun}; default: as time allows."
    return click.option("--points", type=click.IntRange(1), help=text)


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
    help="Remote workers to register, which are idle and must slow nothing down.",
)
@workers_option(4)
@budget_option
@load_options
def recovery(**options: Any) -> None:
    """Kill workers, and measure how soon their jobs run elsewhere, with your settings.

    Each measurement is the slowest job of the killed worker. A job that does not run again within
    its lease plus two seconds is a violation.
    """
    from ..verify.campaigns.recovery import RecoveryCampaign

    remote = options.pop("remote_workers")
    rerun_options = f" --times {options['times']} --remote-workers {remote}"
    run_load_campaign(
        partial(RecoveryCampaign, remote=remote), options, rerun_options, points="times"
    )


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
    help="Duration of the faults; then the jobs settle and are checked.",
)
@workers_option(4)
@load_options
def soak(**options: Any) -> None:
    """Under load, inject a fault every one to three seconds: kill, freeze, stop, disconnect."""
    from ..verify.campaigns.soak import Soak

    minutes = options["minutes"]
    options["budget"] = minutes * 60
    run_load_campaign(Soak, options, f" --minutes {minutes:g}", minutes=None)


@click.command(
    epilog="""
    \b
    Examples: outlast verify clock
              outlast verify clock --store postgres --steps 5 --locks 0 --seed 7

    Only the clock of the campaign's own processes steps, by libfaketime (Linux; the package is
    named faketime or libfaketime). With --store postgres it starts its own server, as dbcrash does.
    """
)
@_clock_option
@click.option(
    "--steps", type=click.IntRange(1), default=20, show_default=True, help="Steps of the clock."
)
@click.option(
    "--locks",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Write locks by another program, each longer than the lease.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Jobs that run during the campaign.",
)
@workers_option(4)
@own_server_options("clock steps the database's clock, so it starts its own database (--store)")
def clock(**options: Any) -> None:
    """Step the database's clock by an hour, and lock its tables, under running jobs.

    No job may lose its owner or be charged with a crash, and all jobs must succeed.
    """
    from ..verify.campaigns.clock import ClockStepsPostgres, ClockStepsSqlite

    store, locks, jobs = options.pop("store"), options.pop("locks"), options.pop("jobs")
    kind: Any = ClockStepsPostgres if store == "postgres" else ClockStepsSqlite
    rerun_options = f" --store {store} --steps {options['steps']} --locks {locks} --jobs {jobs}"
    run_load_campaign(partial(kind, locks=locks, jobs=jobs), options, rerun_options, points="steps")


@click.command(
    epilog="""
    Most fan-ins have a handful of children, some have hundreds, a few a thousand. Exit code 1 also
    if there was no fan-in.

    \b
    Examples: outlast verify flows --budget 10m
              outlast verify flows --url postgresql://localhost/test --points 10000 --seed 7
    """
)
@_points_option("fan-ins")
@workers_option(4)
@enqueue_budget_option
@first_option
@load_options
def flows(**options: object) -> None:
    """Run random chains, fan-ins and graphs while workers are killed and flows cancelled.

    Checks that every follower ran once, after all its prerequisites and with their results, or is
    dead for a reason; that every hook and milestone occurred once; and that no job of a cancelled
    flow started afterwards.
    """
    from ..verify.campaigns.flows import FlowCampaign

    run_load_campaign(FlowCampaign, options, _rerun_options(options))


@click.command(
    epilog="""
    \b
    Examples: outlast verify lanes --budget 10m
              outlast verify lanes --url postgresql://localhost/test --workers 8 --seed 7
              outlast verify lanes --url postgresql://localhost/test --old-snapshot
    """
)
@_points_option("runs")
@click.option(
    "--old-snapshot",
    is_flag=True,
    help="Hold an old snapshot meanwhile, as a long report does (PostgreSQL).",
)
@workers_option(4)
@enqueue_budget_option
@first_option
@load_options
def lanes(old_snapshot: bool, **options: object) -> None:
    """Run limited and ordered queues while workers are killed and limits changed.

    One of the queues has 1,000 lanes with a limit of 1 to 3. A worker is killed every second, and
    limits change every five seconds. Checks by the history that no lane and no queue ever ran more
    jobs than its limit, that ordered lanes kept their order across failures and kills, and that no
    job waited for more than ten seconds where there was room.
    """
    from ..verify.campaigns.lanes import LaneCampaign

    rerun_options = " --old-snapshot" * old_snapshot + _rerun_options(options)
    run_load_campaign(partial(LaneCampaign, old_snapshot=old_snapshot), options, rerun_options)


@click.command(
    epilog="""
    \b
    Examples: outlast verify waits --budget 10m
              outlast verify waits --url postgresql://localhost/test --workers 8 --seed 7
    """
)
@_points_option("runs")
@workers_option(3)
@enqueue_budget_option
@first_option
@load_options
def waits(**options: object) -> None:
    """Race signals with waits and time-outs while workers and senders are killed.

    Early, double and late signals, some in transactions that commit late or not at all. Checks that
    each signal was taken once and in order, that none was lost, and that a signal and a time-out
    were decided once.
    """
    from ..verify.campaigns.waits import WaitCampaign

    run_load_campaign(WaitCampaign, options, _rerun_options(options))


@click.command(
    epilog="""
    \b
    Examples: outlast verify schedules --budget 10m
              outlast verify schedules --store postgres --workers 8 --seed 7

    Only the clock of the campaign's own processes steps, by libfaketime (Linux; the package is
    named faketime or libfaketime). With --store postgres it starts its own server, as dbcrash does.
    """
)
@_clock_option
@_points_option("ticks")
@workers_option(4)
@enqueue_budget_option
@first_option
@own_server_options("schedules steps the database's clock, so it starts its own database (--store)")
def schedules(**options: Any) -> None:
    """Fire schedules while workers are killed, the clock steps, and an operator changes them.

    Checks by the history that each tick has one job, unless its policy skips it, and that runs
    overlap only where the policy allows it.
    """
    from ..verify.campaigns.schedules import ScheduleCampaignPostgres, ScheduleCampaignSqlite

    store = options.pop("store")
    kind: Any = ScheduleCampaignPostgres if store == "postgres" else ScheduleCampaignSqlite
    run_load_campaign(kind, options, f" --store {store}{_rerun_options(options)}")


def _rerun_options(options: dict[str, object]) -> str:
    points = f" --points {options['points']}" if options["points"] else ""
    budget = f" --budget {options['budget']:g}" if options["budget"] else ""
    return points + budget
