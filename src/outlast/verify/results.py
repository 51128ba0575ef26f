"""Results of a campaign: counts by scenario, and violations."""

from __future__ import annotations

import json
import platform
import sqlite3
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ..version import VERSION
from .distribution import Distribution
from .workspace import OWN_DATABASES


@dataclass(slots=True)
class ScenarioCounts:
    """The counts of one scenario; their columns depend on the campaign."""

    points: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    violations: int = 0

    def add(self, column: str, number: int = 1) -> None:
        self.counts[column] = self.counts.get(column, 0) + number


@dataclass(slots=True)
class FoundViolation:
    """A violation and its scenario."""

    where: str
    path: str
    message: str


@dataclass(slots=True)
class CampaignResults:
    campaign: str
    url: str  # without its password
    seed: int
    columns: tuple[str, ...]
    goal: str  # the column that counts the requested points
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    jobs: int = 0
    rows: dict[str, ScenarioCounts] = field(default_factory=dict)
    violations: list[FoundViolation] = field(default_factory=list)
    interrupted: bool = False
    facts: dict[str, object] = field(default_factory=dict)  # additional results
    spans: dict[str, list[float]] = field(default_factory=dict)  # measured seconds
    rerun_options: str | None = None  # options of the command that are not a list of scenarios

    def counts_of(self, path: str) -> ScenarioCounts:
        return self.rows.setdefault(path, ScenarioCounts())

    def total(self, column: str) -> int:
        return sum(row.counts.get(column, 0) for row in self.rows.values())

    def add_violation(self, where: str, path: str, message: str) -> None:
        self.violations.append(FoundViolation(where, path, message))
        self.counts_of(path).violations += 1

    def close(self) -> None:
        self.seconds = round(time.monotonic() - self.began, 3)

    def reproduction(self) -> str:
        """The command that repeats the scenarios with violations."""
        paths = sorted(
            {violation.path for violation in self.violations if violation.path in self.rows}
        )
        chosen = (
            "".join(f" --path {path}" for path in paths)
            if self.rerun_options is None
            else self.rerun_options
        )
        url = "" if self.url in OWN_DATABASES else f" --url {self.url}"
        return f"outlast verify {self.campaign}{url} --seed {self.seed}{chosen}"

    def as_json(self) -> dict[str, object]:
        return {
            "campaign": self.campaign,
            "url": self.url,
            "seed": self.seed,
            "seconds": self.seconds,
            **{what: self.total(what) for what in self.columns},
            "jobs": self.jobs,
            **{name: Distribution(spans).as_json() for name, spans in self.spans.items()},
            "violations": len(self.violations),
            "interrupted": self.interrupted,
            **self.facts,
            "paths": {
                path: {"points": row.points, **row.counts, "violations": row.violations}
                for path, row in sorted(self.rows.items())
            },
            "wrong": [asdict(wrong) for wrong in self.violations],
        }


def append_results(file: Path, results: CampaignResults) -> None:
    """Append one line per run."""
    record = results.as_json()
    for detail in ("paths", "wrong"):
        del record[detail]
    add_line(file, record)


def add_line(file: Path, record: dict[str, object]) -> None:
    line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **record, **versions()}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as ledger:
        ledger.write(json.dumps(line) + "\n")


def versions() -> dict[str, str]:
    known = {
        "outlast": VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
    }
    try:
        import psycopg

        known["psycopg"] = psycopg.__version__
    except ImportError:
        pass
    return known
