"""Campaigns as their users run them: `outlast verify …`, in a process of its own."""

from __future__ import annotations

import json
from typing import Any

from outlast.verify.scenarios import SCENARIOS
from tests.support import Database, Process, Processes

PATIENCE = 280.0  # seconds for what takes five on an idle machine


def start(processes: Processes, campaign: str, *words: object) -> Process:
    return processes.python("outlast", "verify", campaign, *words)


def run(processes: Processes, campaign: str, database: Database, *words: object) -> dict[str, Any]:
    """The figures of a campaign that found nothing wrong."""
    started = start(processes, campaign, "--url", database.url, "--json", *words)
    return figures(started.succeed(PATIENCE))


def figures(output: str) -> dict[str, Any]:
    """The JSON in what a process said; progress comes before it."""
    found: dict[str, Any] = json.loads(output[output.index("\n{") if output[0] != "{" else 0 :])
    return found


def all_paths(kind: str) -> list[str]:
    """Those that there are on a kind of database."""
    return [name for name, path in SCENARIOS.items() if path.only_store in (None, kind)]


def sampled_paths(kind: str, half: int) -> list[str]:
    """Every other one of those that both databases have, and all that only this one has. The other
    half is another test's; a campaign walks all of them on both."""
    here = all_paths(kind)
    both = [name for name in here if SCENARIOS[name].only_store is None]
    return [*both[half::2], *(name for name in here if name not in both)]


def only(paths: list[str]) -> list[str]:
    """The words for a command that walks these alone."""
    return [word for name in paths for word in ("--path", name)]
