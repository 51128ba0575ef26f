"""`outlast forget`: erase the data of ended jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .database_options import json_option, with_client
from .job_actions import apply_each, print_results

if TYPE_CHECKING:
    from ..client.client import Outlast


@click.command(epilog="Example: outlast forget 0198c1f2-7d1e-7c3a-9f65-2b1f0c3d4e5f")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option
@with_client
def forget(ol: Outlast, ids: Sequence[str], as_json: bool) -> None:
    """Erase the data of ended jobs: arguments, results, errors, steps and events' data.

    The row stays, with times, state and key. Exit code 1: a job was not found, or has not ended
    yet.
    """
    print_results(apply_each(ids, ol.forget), as_json, "")
