"""One breakage of the protocol, made on purpose in a copy of this package, and the hunt for it."""

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

from ..model.errors import OutlastError

PACKAGE = Path(__file__).parents[1]
SQLITE, POSTGRES = "sqlite", "postgres"
BUDGET = 60.0  # seconds for one hunt
LONGEST = 300.0  # seconds until a campaign that does not end is ended


@dataclass(frozen=True, slots=True)
class Edit:
    """In this file, these words for those."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Ground:
    """Where to hunt: what an unbroken copy walks without a violation."""

    campaign: str
    paths: tuple[str, ...]
    store: str
    points: int

    def __str__(self) -> str:
        return f"{self.campaign} on {self.store}: {', '.join(self.paths)}"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    breaks: str  # what is no longer so, in words
    edits: Sequence[Edit]
    campaign: str = "crash"
    paths: tuple[str, ...] = ()
    points: int = 40
    store: str = SQLITE  # where it matters

    @property
    def ground(self) -> Ground:
        return Ground(self.campaign, self.paths, self.store, self.points)


class Unbreakable(OutlastError):
    """The words that a mutant replaces are not in the source as often as they should be."""


def check(mutant: Mutant) -> None:
    """Refuse a mutant that is not about the source as it is."""
    for file in {edit.file for edit in mutant.edits}:
        broken(mutant, file)


def broken(mutant: Mutant, file: str) -> str:
    """The text of a file with the breakage in it."""
    text = (PACKAGE / file).read_text("utf-8")
    for edit in mutant.edits:
        if edit.file == file:
            times = text.count(edit.old)
            if times != 1:
                raise Unbreakable(
                    f"the mutant {mutant.name} is out of date: in {file} these words stand"
                    f" {times} times, not once: {edit.old!r}"
                )
            text = text.replace(edit.old, edit.new)
    return text


def breed(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the package, broken unless there is no mutant; the folder for the import path."""
    copy = folder / "outlast"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file in {edit.file for edit in mutant.edits} if mutant else ():
        (copy / file).write_text(broken(mutant, file), "utf-8")  # type: ignore[arg-type]
    return folder


Started = Callable[[subprocess.Popen[str]], object]


@dataclass(frozen=True, slots=True)
class Where:
    """What all hunts of a run share."""

    seed: int = 1
    url: str | None = None  # of a PostgreSQL
    schema: str | None = None


def walk(
    copy: Path,
    ground: Ground,
    where: Where,
    *,
    first: bool = False,
    started: Started = lambda _: None,
) -> dict[str, Any]:
    """The figures of a campaign on a copy; `first`: only until something is wrong."""
    command = [sys.executable, "-m", "outlast", "verify", ground.campaign, "--json"]
    command += ["--seed", str(where.seed), "--points", str(ground.points), "--budget", str(BUDGET)]
    command += [word for path in ground.paths for word in ("--path", path)]
    command += ["--first"] if first else []
    command += ["--schema", where.schema] if where.schema else []
    process = subprocess.Popen(
        command,
        env=_environment(copy, where.url if ground.store == POSTGRES else None),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; we tell it
    )
    started(process)
    try:
        said, noise = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        raise HuntFailed(f"{ground} did not end within {LONGEST:g} s") from None
    if not said:
        last = (noise.strip().splitlines() or ["it said nothing"])[-1]
        raise HuntFailed(f"{ground} could not be walked: {last}")
    figures: dict[str, Any] = json.loads(said)
    return figures


class HuntFailed(OutlastError):
    """A campaign on a copy did not come to a result."""


def _environment(copy: Path, url: str | None) -> dict[str, str]:
    """The address, which may hold a password, is told where other users cannot read it."""
    said = {**os.environ, "PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
    said.pop("OUTLAST_URL", None)
    return said | ({"OUTLAST_URL": url} if url else {})
