"""A mutation run: the campaigns are tested.

    baseline   every campaign run on an unchanged copy: violations there would prove nothing
    mutants    each on its campaign run, until the campaign reports a violation

A mutant that survives is a hole in a campaign or in the checker.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outlast.model.errors import OutlastError
from outlast.verify.campaigns.campaign import stop_signals

from .mutation import (
    POSTGRES,
    CampaignFailed,
    CampaignRun,
    Mutant,
    RunOptions,
    check,
    copy_package,
    run_campaign,
)

GOALS = {
    "crash": "kills",
    "zombie": "taken",
    "flows": "fan_ins",
    "lanes": "runs",
    "schedules": "ticks",
    "ackloss": "lost",
}
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MutantResult:
    mutant: str
    breaks: str
    campaign: str
    store: str
    caught: bool
    points: int  # until it was caught
    told: str  # the violation, or why there is no result
    where: str
    seconds: float


@dataclass(slots=True)
class MutationResults:
    seed: int
    left_out: int = 0  # for want of a PostgreSQL
    seconds: float = 0.0
    results: list[MutantResult] = field(default_factory=list)
    unsound: list[str] = field(default_factory=list)  # runs that fail without a mutant
    interrupted: bool = False

    @property
    def survivors(self) -> list[MutantResult]:
        return [result for result in self.results if not result.caught]

    @property
    def passed(self) -> bool:
        return bool(self.results) and not (self.survivors or self.unsound or self.interrupted)

    def summary(self) -> dict[str, Any]:
        return {
            "campaign": "mutants",
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "mutants": len(self.results),
            "caught": len(self.results) - len(self.survivors),
            "survived": [result.mutant for result in self.survivors],
            "left_out": self.left_out,
            "unsound": self.unsound,
            "interrupted": self.interrupted,
        }


class MutationRun:
    def __init__(
        self,
        mutants: Sequence[Mutant],
        options: RunOptions,
        at_once: int = 2,
        report: Report = lambda _: None,
    ) -> None:
        for mutant in mutants:
            check(mutant)
        self.mutants = [m for m in mutants if options.url or m.store != POSTGRES]
        self.options = options
        self.at_once = at_once
        self.report = report
        self.results = MutationResults(options.seed, left_out=len(mutants) - len(self.mutants))
        self._running: list[subprocess.Popen[str]] = []
        self._stopping = False
        self._unsound: set[CampaignRun] = set()

    def run(self) -> MutationResults:
        began = time.monotonic()
        with (
            stop_signals(),
            tempfile.TemporaryDirectory(prefix="outlast-mutants-") as folder,
            ThreadPoolExecutor(self.at_once) as pool,
        ):
            try:
                self._run_baseline(pool, Path(folder))
                self._run_mutants(pool, Path(folder))
            except KeyboardInterrupt:
                self.results.interrupted = True
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._terminate_all()  # some run only after an interrupt
        self.results.seconds = time.monotonic() - began
        return self.results

    def _run_baseline(self, pool: ThreadPoolExecutor, folder: Path) -> None:
        copy = copy_package(None, folder / "unchanged")
        runs = {
            pool.submit(self._baseline_violation, copy, run): run
            for run in campaign_runs(self.mutants)
        }
        for number, done in enumerate(as_completed(runs), 1):
            wrong = done.result()
            if wrong:
                self._unsound.add(replace(runs[done], points=0))
                self.results.unsound.append(f"{runs[done]}: {wrong}")
            how = f"fails without a mutant: {wrong}" if wrong else "is sound"
            self.report(f"baseline {number} of {len(runs)}: {runs[done]}: {how}")

    def _baseline_violation(self, copy: Path, run: CampaignRun) -> str:
        """The first violation without a mutant, or an empty string."""
        try:
            figures = self._figures(copy, run)
        except OutlastError as error:
            return str(error)
        if figures["wrong"]:
            return str(figures["wrong"][0]["message"])
        return "" if figures[GOALS[run.campaign]] else "the campaign had no points"

    def _run_mutants(self, pool: ThreadPoolExecutor, folder: Path) -> None:
        runs: dict[Future[MutantResult], str] = {
            pool.submit(self._run_mutant, mutant, folder / mutant.name): mutant.name
            for mutant in self.mutants
        }
        for number, done in enumerate(as_completed(runs), 1):
            result = done.result()
            self.results.results.append(result)
            how = f"caught after {result.points}: {result.told}" if result.caught else "SURVIVED"
            self.report(f"mutant {number} of {len(runs)}: {result.mutant}: {how}")
        order = list(runs.values())
        self.results.results.sort(key=lambda result: order.index(result.mutant))

    def _run_mutant(self, mutant: Mutant, folder: Path) -> MutantResult:
        began = time.monotonic()
        try:
            if replace(mutant.campaign_run, points=0) in self._unsound:
                raise CampaignFailed("its campaign run fails without a mutant")
            figures = self._figures(copy_package(mutant, folder), mutant.campaign_run, first=True)
            points, wrong = figures[GOALS[mutant.campaign]], figures["wrong"]
            judged = [each for each in wrong if _is_invariant(each["message"])]
            told, where = _first(judged or wrong)
        except CampaignFailed as error:
            judged, points, told, where = [], 0, str(error), ""
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # 200 copies are gigabytes
        return MutantResult(
            mutant=mutant.name, breaks=mutant.breaks, campaign=mutant.campaign, store=mutant.store,
            caught=bool(judged), points=points, told=told, where=where,
            seconds=round(time.monotonic() - began, 1),
        )  # fmt: skip

    def _figures(self, copy: Path, run: CampaignRun, *, first: bool = False) -> dict[str, Any]:
        return run_campaign(copy, run, self.options, first=first, started=self._started)

    def _started(self, process: subprocess.Popen[str]) -> None:
        self._running.append(process)
        if self._stopping:
            self._terminate_all()

    def _terminate_all(self) -> None:
        """Campaigns remove their schemas and files on SIGTERM."""
        self._stopping = True
        for process in self._running:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.terminate()


def campaign_runs(mutants: Sequence[Mutant]) -> list[CampaignRun]:
    """Each run once, with as many points as any mutant needs."""
    most: dict[CampaignRun, int] = {}
    for mutant in mutants:
        run = replace(mutant.campaign_run, points=0)
        most[run] = max(most.get(run, 0), mutant.points)
    return [replace(run, points=points) for run, points in most.items()]


def _first(wrong: list[dict[str, str]]) -> tuple[str, str]:
    return (wrong[0]["message"], wrong[0]["where"]) if wrong else ("", "")


def _is_invariant(message: str) -> bool:
    """Whether an invariant is violated; a process may fail for other reasons."""
    return message[:1] == "I" and message[1:2].isdigit()
