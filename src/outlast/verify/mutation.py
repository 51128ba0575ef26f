"""The tester is tested: break the protocol on purpose, in a copy, and see the campaign notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One deliberate breakage: in this file, these words for those. `paths` are where to look."""

    name: str
    file: str
    old: str
    new: str
    campaign: str = "crash"
    paths: tuple[str, ...] = ()
    points: int = 40
    only: str | None = None  # the one kind of database on which it breaks anything


class Unbreakable(Exception):
    """The words that a mutant replaces are not in the source as often as they should be."""


def breed(mutant: Mutant, folder: Path) -> Path:
    """A copy of the package with the breakage in it; the folder to put on the import path."""
    copy = folder / "outlast"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / mutant.file
    text = file.read_text("utf-8")
    if text.count(mutant.old) != 1:
        raise Unbreakable(f"{mutant.name}: {mutant.old!r} stands {text.count(mutant.old)} times")
    file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    return folder


def hunt(mutant: Mutant, folder: Path, url: str | None = None, seed: int = 1) -> dict[str, Any]:
    """Run the campaign on a broken copy: its figures."""
    command = [sys.executable, "-m", "outlast", "verify", mutant.campaign, "--json"]
    command += ["--seed", str(seed), "--points", str(mutant.points), "--budget", "60"]
    command += [word for path in mutant.paths for word in ("--path", path)]
    if url is not None:
        command += ["--url", url]
    path = os.pathsep.join([str(breed(mutant, folder)), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if not ended.stdout:
        raise RuntimeError(f"{mutant.name}: the campaign did not run: {ended.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(ended.stdout)
    return figures


MUTANTS = [
    Mutant(
        "finish without the fence",
        "store/sql/finish.sql",
        "WHERE j.id = :id AND j.fence = :fence AND j.state = 'running'\nRETURNING",
        "WHERE j.id = :id AND :fence > 0 AND j.state = 'running'\nRETURNING",
        campaign="zombie",
        paths=("finish-succeeded", "finish-failed"),
        points=10,
        only="sqlite",
    ),
    Mutant(
        "finish without the fence, on PostgreSQL",
        "store/sql/finish.sql",
        "WHERE j.id = t.id AND j.fence = t.fence AND j.state || '' = 'running'\nRETURNING",
        "WHERE j.id = t.id AND j.state || '' = 'running'\nRETURNING",
        campaign="zombie",
        paths=("finish-succeeded", "finish-failed"),
        points=10,
        only="postgres",
    ),
    Mutant(
        "renew without the fence",
        "store/sql/renew.sql",
        "WHERE j.id = :id AND j.fence = :fence AND j.worker = :worker AND j.state = 'running'",
        "WHERE j.id = :id AND :fence > 0 AND :worker <> '' AND j.state = 'running'",
        campaign="zombie",
        paths=("renew", "report"),
        points=10,
        only="sqlite",
    ),
    Mutant(
        "events without the fence",
        "store/sql/operate.sql",
        "WHERE j.id = :job AND j.fence = :fence AND j.state = 'running'\nON CONFLICT",
        "WHERE j.id = :job AND :fence > 0 AND j.state = 'running'\nON CONFLICT",
        campaign="zombie",
        paths=("renew", "report"),
        points=10,
        only="sqlite",
    ),
    Mutant(
        "what comes with a finish is not in its transaction",
        "ops/finish.py",
        "    if events or not all(transition.plain for transition in transitions):\n",
        "    if events:\n",
        paths=("finish-followed", "finish-failed"),
    ),
    Mutant(
        "a reclaim sets attempts back",
        "model/outcome.py",
        "return Transition(claim, Outcome.CRASHED, to, error=error, crashes=1)",
        "return Transition(claim, Outcome.CRASHED, to, error=error, crashes=1, refund=1)",
        paths=("claim", "finish-succeeded"),
    ),
    Mutant(
        "a reclaim forgets the crash",
        "model/outcome.py",
        "return Transition(claim, Outcome.CRASHED, to, error=error, crashes=1)",
        "return Transition(claim, Outcome.CRASHED, to, error=error)",
        paths=("claim", "finish-succeeded"),
    ),
    Mutant(
        "finish before the handler",
        "worker/execute.py",
        "            result = await self.call(arguments, threads)\n",
        '            result = {"fence": self.claim.fence}\n',
        paths=("enqueue", "enqueue-key"),
        points=10,
    ),
    Mutant(
        "pruned jobs leave their attempts",
        "ops/duties.py",
        '        yield Statement("prune_attempts", {"ids": ids})\n',
        "",
        paths=("prune",),
        points=16,
    ),
    Mutant(
        "a claim without a new fence",
        "store/sql/claim.sql",
        "-- sqlite: one writer at a time needs no lock clause\nUPDATE ol.job AS j\n"
        "SET state = 'running', attempt = j.attempt + 1, fence = j.fence + 1,",
        "-- sqlite: one writer at a time needs no lock clause\nUPDATE ol.job AS j\n"
        "SET state = 'running', attempt = j.attempt + 1, fence = max(j.fence, 1),",
        paths=("finish-succeeded", "finish-failed"),
        only="sqlite",
    ),
    Mutant(
        "bulk jobs are inserted one by one",
        "ops/enqueue.py",
        '    inserted: Rows = yield Statement("insert_jobs", rows=[job.row() for job in unique])\n',
        "    inserted: Rows = []\n"
        "    for job in unique:\n"
        '        inserted += yield Statement("insert_jobs", rows=[job.row()])\n',
        paths=("bulk", "transaction-bulk"),
        only="sqlite",
    ),
]
