"""Play a program of examples/seeds in a process of its own, and read its report."""

from __future__ import annotations

import json
from typing import Any

from tests.support import Database, Processes
from tests.support.processes import ROOT

SEEDS = ROOT / "examples" / "seeds"
LIMIT_S = 240  # beside many other tests; alone, each needs a tenth of that


def play(
    processes: Processes, program: str, database: Database, *options: object
) -> dict[str, Any]:
    """The report of a program in which everything held: `kills`, `figures`, `broken`."""
    sqlite = database.url.startswith("sqlite")
    address = () if sqlite else ("--url", database.url)  # it makes a file or schema of its own
    arguments = ("--json", "--limit", LIMIT_S, *address, *options)
    played = processes.python(SEEDS / f"{program}.py", *arguments)
    report: dict[str, Any] = json.loads(played.succeed(timeout=LIMIT_S + 30).splitlines()[-1])
    assert report["store"] == ("sqlite" if sqlite else "postgresql")
    assert report["broken"] == []
    return report
