"""What a campaign has to show: figures by path, and everything that went wrong."""

from __future__ import annotations

import json
import platform
import sqlite3
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..version import VERSION
from .distribution import Distribution
from .place import OWN, PAIR, TEMPORARY


@dataclass(slots=True)
class Row:
    """What happened on one path. What is counted depends on the campaign."""

    points: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    violations: int = 0

    def add(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number


@dataclass(slots=True)
class Wrong:
    """One violation, and where it happened."""

    where: str
    path: str
    told: str


@dataclass(slots=True)
class Figures:
    campaign: str
    url: str  # without its password
    seed: int
    columns: tuple[str, ...]
    goal: str  # the one of them by which the points that were asked for are counted
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    jobs: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    wrong: list[Wrong] = field(default_factory=list)
    interrupted: bool = False
    facts: dict[str, Any] = field(default_factory=dict)  # what else there is to tell
    spans: dict[str, list[float]] = field(default_factory=dict)  # seconds that were measured
    again: str | None = None  # what the command was given, if that is not a choice of paths

    def row(self, path: str) -> Row:
        return self.rows.setdefault(path, Row())

    def total(self, what: str) -> int:
        return sum(row.counts.get(what, 0) for row in self.rows.values())

    def complain(self, where: str, path: str, told: str) -> None:
        self.wrong.append(Wrong(where, path, told))
        self.row(path).violations += 1

    def close(self) -> None:
        self.seconds = round(time.monotonic() - self.began, 3)

    def reproduction(self) -> str:
        """The command that does the same again, on the paths where something was wrong."""
        paths = sorted({wrong.path for wrong in self.wrong if wrong.path in self.rows})
        chosen = "".join(f" --path {path}" for path in paths) if self.again is None else self.again
        place = "" if self.url in (OWN, PAIR, TEMPORARY) else f" --url {self.url}"
        return f"outlast verify {self.campaign}{place} --seed {self.seed}{chosen}"

    def as_json(self) -> dict[str, Any]:
        return {
            "campaign": self.campaign,
            "url": self.url,
            "seed": self.seed,
            "seconds": self.seconds,
            **{what: self.total(what) for what in self.columns},
            "jobs": self.jobs,
            **{name: Distribution(spans).as_json() for name, spans in self.spans.items()},
            "violations": len(self.wrong),
            "interrupted": self.interrupted,
            **self.facts,
            "paths": {
                path: {"points": row.points, **row.counts, "violations": row.violations}
                for path, row in sorted(self.rows.items())
            },
            "wrong": [asdict(wrong) for wrong in self.wrong],
        }


def append(file: Path, figures: Figures) -> None:
    """One line for each run, for ever."""
    said = figures.as_json()
    for detail in ("paths", "wrong"):
        del said[detail]
    add_line(file, said)


def add_line(file: Path, said: dict[str, Any]) -> None:
    line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **said, **versions()}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as ledger:
        ledger.write(json.dumps(line) + "\n")


def versions() -> dict[str, str]:
    found = {
        "outlast": VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
    }
    try:
        import psycopg

        found["psycopg"] = psycopg.__version__
    except ImportError:
        pass
    return found
