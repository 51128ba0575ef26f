"""Campaigns as their users run them: `outlast verify …`, in a process of its own."""

from __future__ import annotations

import json
from typing import Any

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
