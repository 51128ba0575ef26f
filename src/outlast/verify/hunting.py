"""`outlast verify mutants`: the tester is tested.

    walk    the unbroken copy, on every ground: whoever complains there would complain of anything
    hunt    each mutant on its ground, until the campaign complains

A mutant that gets away is a hole in a campaign or in the judge.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..model.errors import OutlastError
from .campaigns.campaign import stop_signals
from .mutation import POSTGRES, Ground, HuntFailed, Mutant, Where, breed, check, walk

GOALS = {"crash": "kills", "zombie": "taken", "flows": "fan_ins"}
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Catch:
    """How one hunt ended."""

    mutant: str
    breaks: str
    campaign: str
    store: str
    caught: bool
    points: int  # after how many
    told: str  # by which violation, or why there is no answer
    where: str
    seconds: float


@dataclass(slots=True)
class Report:
    seed: int
    left_out: int = 0  # for want of a PostgreSQL
    seconds: float = 0.0
    catches: list[Catch] = field(default_factory=list)
    unsound: list[str] = field(default_factory=list)  # grounds on which the unbroken copy fails
    interrupted: bool = False

    @property
    def survivors(self) -> list[Catch]:
        return [catch for catch in self.catches if not catch.caught]

    @property
    def well(self) -> bool:
        return bool(self.catches) and not (self.survivors or self.unsound or self.interrupted)

    def summary(self) -> dict[str, Any]:
        return {
            "campaign": "mutants",
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "mutants": len(self.catches),
            "caught": len(self.catches) - len(self.survivors),
            "survived": [catch.mutant for catch in self.survivors],
            "left_out": self.left_out,
            "unsound": self.unsound,
            "interrupted": self.interrupted,
        }


class Hunts:
    def __init__(
        self,
        mutants: Sequence[Mutant],
        where: Where,
        at_once: int = 2,
        tell: Tell = lambda _: None,
    ) -> None:
        for mutant in mutants:
            check(mutant)
        self.mutants = [m for m in mutants if where.url or m.store != POSTGRES]
        self.where = where
        self.at_once = at_once
        self.tell = tell
        self.report = Report(where.seed, left_out=len(mutants) - len(self.mutants))
        self._running: list[subprocess.Popen[str]] = []
        self._stopping = False
        self._unsound: set[Ground] = set()

    def run(self) -> Report:
        began = time.monotonic()
        with (
            stop_signals(),
            tempfile.TemporaryDirectory(prefix="outlast-mutants-") as folder,
            ThreadPoolExecutor(self.at_once) as pool,
        ):
            try:
                self._walk_unbroken(pool, Path(folder))
                self._hunt(pool, Path(folder))
            except KeyboardInterrupt:
                self.report.interrupted = True
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end_all()  # there are some only if it was interrupted
        self.report.seconds = time.monotonic() - began
        return self.report

    def _walk_unbroken(self, pool: ThreadPoolExecutor, folder: Path) -> None:
        copy, grounds = breed(None, folder / "unbroken"), grounds_of(self.mutants)
        walks = {pool.submit(self._walk, copy, ground): ground for ground in grounds}
        for number, done in enumerate(as_completed(walks), 1):
            wrong = done.result()
            if wrong:
                self._unsound.add(replace(walks[done], points=0))
                self.report.unsound.append(f"{walks[done]}: {wrong}")
            how = f"fails without a mutant: {wrong}" if wrong else "is sound"
            self.tell(f"ground {number} of {len(walks)}: {walks[done]}: {how}")

    def _walk(self, copy: Path, ground: Ground) -> str:
        """What is wrong on this ground without any mutant."""
        try:
            figures = self._figures(copy, ground)
        except OutlastError as error:
            return str(error)
        if figures["wrong"]:
            return str(figures["wrong"][0]["message"])
        return "" if figures[GOALS[ground.campaign]] else "there is nothing to walk"

    def _hunt(self, pool: ThreadPoolExecutor, folder: Path) -> None:
        hunts: dict[Future[Catch], str] = {
            pool.submit(self._catch, mutant, folder / mutant.name): mutant.name
            for mutant in self.mutants
        }
        for number, done in enumerate(as_completed(hunts), 1):
            catch = done.result()
            self.report.catches.append(catch)
            how = f"caught after {catch.points}: {catch.told}" if catch.caught else "SURVIVED"
            self.tell(f"mutant {number} of {len(hunts)}: {catch.mutant}: {how}")
        order = list(hunts.values())
        self.report.catches.sort(key=lambda catch: order.index(catch.mutant))

    def _catch(self, mutant: Mutant, folder: Path) -> Catch:
        began = time.monotonic()
        try:
            if replace(mutant.ground, points=0) in self._unsound:
                raise HuntFailed("its ground fails without a mutant")
            figures = self._figures(breed(mutant, folder), mutant.ground, first=True)
            points, wrong = figures[GOALS[mutant.campaign]], figures["wrong"]
            judged = [each for each in wrong if _of_the_judge(each["message"])]
            told, where = _first(judged or wrong)
        except HuntFailed as error:
            judged, points, told, where = [], 0, str(error), ""
        return Catch(
            mutant=mutant.name, breaks=mutant.breaks, campaign=mutant.campaign, store=mutant.store,
            caught=bool(judged), points=points, told=told, where=where,
            seconds=round(time.monotonic() - began, 1),
        )  # fmt: skip

    def _figures(self, copy: Path, ground: Ground, *, first: bool = False) -> dict[str, Any]:
        return walk(copy, ground, self.where, first=first, started=self._started)

    def _started(self, process: subprocess.Popen[str]) -> None:
        self._running.append(process)
        if self._stopping:
            self._end_all()

    def _end_all(self) -> None:
        """Those that still run remove what they made when they are told to stop."""
        self._stopping = True
        for process in self._running:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.terminate()


def grounds_of(mutants: Sequence[Mutant]) -> list[Ground]:
    """Each once, with as many points as any hunt takes there."""
    most: dict[Ground, int] = {}
    for mutant in mutants:
        ground = replace(mutant.ground, points=0)
        most[ground] = max(most.get(ground, 0), mutant.points)
    return [replace(ground, points=points) for ground, points in most.items()]


def _first(wrong: list[dict[str, str]]) -> tuple[str, str]:
    return (wrong[0]["message"], wrong[0]["where"]) if wrong else ("", "")


def _of_the_judge(told: str) -> bool:
    """An invariant is violated; a process that merely failed may have had another reason."""
    return told[:1] == "I" and told[1:2].isdigit()
