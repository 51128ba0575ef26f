"""One deliberate defect: where it is in the source, and the campaign that has to notice it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outlast
from outlast.model.errors import OutlastError

PACKAGE = Path(outlast.__file__).parent
SQLITE, POSTGRES = "sqlite", "postgres"
CAMPAIGN_BUDGET_S = 60.0  # as `outlast verify --budget`
MAX_CAMPAIGN_S = 300.0  # then a campaign that does not end is killed
OWN_DATABASE = ("schedules",)  # campaigns that start their own database


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `old`, which occurs once in the file, by `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class CampaignRun:
    """A run of a campaign: without a mutant it has no violation."""

    campaign: str
    paths: tuple[str, ...]
    store: str
    points: int

    def __str__(self) -> str:
        return f"{self.campaign} on {self.store}: {', '.join(self.paths)}"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str  # what no longer holds, in words
    edits: Sequence[Edit]
    campaign: str = "crash"
    paths: tuple[str, ...] = ()
    points: int = 40
    store: str = SQLITE

    @property
    def campaign_run(self) -> CampaignRun:
        return CampaignRun(self.campaign, self.paths, self.store, self.points)


class OutdatedMutant(OutlastError):
    """The text that a mutant replaces does not occur exactly once in the source."""


class CampaignFailed(OutlastError):
    """A campaign on a copy of the package ended without figures."""


def check(mutant: Mutant) -> None:
    """Refuse a mutant that does not fit the source."""
    for file in {edit.file for edit in mutant.edits}:
        mutated_text(mutant, file)


def mutated_text(mutant: Mutant, file: str) -> str:
    text = (PACKAGE / file).read_text("utf-8")
    for edit in mutant.edits:
        if edit.file == file:
            times = text.count(edit.old)
            if times != 1:
                raise OutdatedMutant(
                    f"the mutant {mutant.name} is out of date: {file} has this text"
                    f" {times} times, not once: {edit.old!r}"
                )
            text = text.replace(edit.old, edit.new)
    return text


def copy_package(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the package with the mutant's edits; returns the folder for the import path."""
    copy = folder / "outlast"
    # With what is compiled; but not what is being compiled just now, and gone in a moment.
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.pyc.*"))
    if mutant is not None:
        for file in {edit.file for edit in mutant.edits}:
            (copy / file).write_text(mutated_text(mutant, file), "utf-8")
    return folder


ProcessStarted = Callable[[subprocess.Popen[str]], object]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that all campaigns of a mutation run share."""

    seed: int = 1
    url: str | None = None  # of a PostgreSQL
    schema: str | None = None


def run_campaign(
    copy: Path,
    run: CampaignRun,
    options: RunOptions,
    *,
    first: bool = False,
    started: ProcessStarted = lambda _: None,
) -> dict[str, Any]:
    """The figures of a campaign on a copy of the package; `first`: stop at a violation."""
    command = [sys.executable, "-m", "outlast", "verify", run.campaign, "--json"]
    command += ["--seed", str(options.seed), "--points", str(run.points)]
    command += ["--budget", str(CAMPAIGN_BUDGET_S)]
    command += [word for path in run.paths for word in ("--path", path)]
    command += ["--first"] if first else []
    command += ["--store", run.store] if run.campaign in OWN_DATABASE else []
    command += ["--schema", options.schema] if options.schema else []
    process = subprocess.Popen(
        command,
        env=_environment(copy, options.url if run.store == POSTGRES else None),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; we pass it on
    )
    started(process)
    try:
        output, errors = process.communicate(timeout=MAX_CAMPAIGN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise CampaignFailed(f"{run} did not end within {MAX_CAMPAIGN_S:g} s") from None
    if not output:
        last = (errors.strip().splitlines() or ["no output"])[-1]
        raise CampaignFailed(f"{run} failed: {last}")
    figures: dict[str, Any] = json.loads(output)
    return figures


def _environment(copy: Path, url: str | None) -> dict[str, str]:
    """The URL, which may hold a password, is passed where other users cannot read it."""
    variables = {**os.environ, "PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
    variables.pop("OUTLAST_URL", None)
    return variables | ({"OUTLAST_URL": url} if url else {})
