"""Verification campaigns on your own database: `outlast verify`."""

from __future__ import annotations

import click

from .default_group import SpellingGroup
from .verify_load_campaigns import clock, flows, lanes, recovery, schedules, soak, waits
from .verify_options import campaign_options
from .verify_outage_campaigns import dbcrash, failover
from .verify_run import run_campaign


@click.group(
    cls=SpellingGroup,
    epilog="""
    Each campaign works in its own schemas (or files) in the database of --url, and removes them
    when it ends, also on Ctrl-C; their names begin with that of --schema. Without --url and
    OUTLAST_URL, a temporary SQLite file is used.

    Exit code 0: the guarantees held. 1: they did not; the command that reproduces it is printed.

    Example: outlast verify crash --budget 60
    """,
)
def verify() -> None:
    """Verify the guarantees: kill and freeze processes, then check the jobs."""


@verify.command(
    epilog="""
    \b
    Examples: outlast verify crash
              outlast verify crash --url postgresql://localhost/test --budget 10m
              outlast verify crash --path bulk --path worker --seed 7
    """
)
@campaign_options
def crash(**options: object) -> None:
    """Kill a process before and after every statement of every operation."""
    from ..verify.campaigns.crash import Crash

    run_campaign(Crash, options)


@verify.command(
    epilog="""
    \b
    Examples: outlast verify zombie
              outlast verify zombie --url postgresql://localhost/test --points 2000
    """
)
@campaign_options
def zombie(**options: object) -> None:
    """Freeze owners until another worker has their jobs: their later writes are rejected."""
    from ..verify.campaigns.zombie import ZombieCampaign

    run_campaign(ZombieCampaign, options)


@verify.command(
    epilog="""
    PostgreSQL only. The connection is not encrypted: it runs through a proxy that reads the
    server's messages.

    \b
    Examples: outlast verify ackloss --url postgresql://localhost/test
              outlast verify ackloss --url postgresql://localhost/test --points 5000 --budget 10m
    """
)
@campaign_options
def ackloss(**options: object) -> None:
    """Lose the reply to a COMMIT: a retry neither repeats the work nor guesses the outcome."""
    from ..verify.campaigns.ackloss import AckLoss

    run_campaign(AckLoss, options)


@verify.command(
    epilog="""
    PostgreSQL only, and not encrypted, as for ackloss. For this campaign no call may take longer
    than 5 s; for your own calls, the setting `deadline` is the limit.

    \b
    Examples: outlast verify netsplit --url postgresql://localhost/test
              outlast verify netsplit --url postgresql://localhost/test --points 200
    """
)
@campaign_options
def netsplit(**options: object) -> None:
    """Stall, slow down and break connections: no call outlives its deadline."""
    from ..verify.campaigns.netsplit import NetSplit

    run_campaign(NetSplit, options)


for command in (recovery, flows, lanes, schedules, waits, soak, dbcrash, failover, clock):
    verify.add_command(command)
