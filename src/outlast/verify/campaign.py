"""What every campaign has: a place of its own, children, figures, an end, and a clean exit."""

from __future__ import annotations

import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..model.errors import InvalidOption
from ..store.statements import queries
from .checker import Violation
from .children import ChildFailed, Children, Ended
from .figures import Figures
from .paths import PATHS, Path
from .place import Place, Site
from .points import Point
from .recovery import Verdict
from .workload import Workload

BUDGET = 60.0  # seconds, if nobody says otherwise


@dataclass(frozen=True, slots=True)
class Wish:
    """What a campaign is asked to do."""

    url: str | None = None
    schema: str | None = None
    seed: int | None = None
    points: int | None = None
    budget: float | None = None
    paths: tuple[str, ...] = ()
    at_once: int | None = None
    keep: bool = False
    first: bool = False  # stop when something is wrong


class Campaign(ABC):
    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    goal: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}  # of the store
    owners: ClassVar[bool] = False  # whether only paths of owners are of use

    def __init__(self, wish: Wish, watch: Callable[[Figures], None] = lambda _: None) -> None:
        self.wish = wish
        self.watch = watch
        self.seed = random.randrange(10**6) if wish.seed is None else wish.seed
        self.budget = wish.budget
        if wish.budget is None and wish.points is None:
            self.budget = BUDGET
        self.at_once = wish.at_once or max(3, (os.cpu_count() or 2) + 1)
        self.paths = self._chosen()
        self.site = Site(wish.url, wish.schema)
        self.figures = Figures(self.name, str(self.site), self.seed, self.columns, self.goal)
        self.started = 0  # points
        self.running = 0  # children that walk a path just now
        self._next: list[Place] = []
        self._stops: list[int] = []

    def run(self) -> Figures:
        """Do it, and leave nothing behind, however it ends."""
        try:
            with stoppable() as self._stops:
                self._run()
        except KeyboardInterrupt:
            self.figures.interrupted = True
        except BaseException:
            with suppress(Exception):  # the first error tells more
                self.clean_up()
            raise
        self.clean_up()
        return self.figures

    def _run(self) -> None:
        self.work = Workload(self.site.next(), **self.settings)
        self.work.warm_up()
        self.children = Children(self.site.folder / "noise")
        try:
            self.campaign()
        finally:
            self.children.end_all()

    def clean_up(self) -> None:
        self.figures.close()
        if not self.wish.keep:
            self.site.remove()

    @abstractmethod
    def campaign(self) -> None: ...

    def over(self) -> bool:
        """Whether there is enough of it."""
        if self.wish.first and self.figures.wrong:
            return True
        elapsed = time.monotonic() - self.figures.began
        if self.budget is not None and elapsed >= self.budget:
            return True
        return self.wish.points is not None and self.started >= self.wish.points

    def step(self) -> None:
        if self._stops:
            raise KeyboardInterrupt
        self.children.step()
        self.watch(self.figures)

    def start(self, body: Callable[[], None], then: Callable[[Ended], None]) -> int:
        """A child that walks a path, as soon as there are not too many of them."""
        while self.running >= self.at_once:
            self.step()
        self.running += 1
        return self.children.start(body, then)

    # Where

    def place(self) -> Place:
        """Where the next batch takes place; the one after it is being prepared meanwhile."""
        if not self._next:
            self._prepare()
        place = self._next.pop()
        while not place.ready.exists():
            self.step()
        self._prepare()
        self.work.trust(place)
        return place

    def _prepare(self) -> None:
        place = self.site.next()
        queries(self.site.address.dialect, place.schema)  # once here, not in every child
        self._next.append(place)
        self.children.start(partial(prepare, self.work, place), self._prepared)

    def _prepared(self, ended: Ended) -> None:
        if not ended.well:
            raise ChildFailed(self.children.last_words())

    # What went wrong

    def judged(self, place: Place, labels: dict[str, Point], ended: Ended) -> Verdict | None:
        """Take down what the judge said of a place; None if it could not say anything."""
        if not ended.well:
            self.figures.complain("the judge", "judge", self.children.last_words())
            return None
        verdict = Verdict.read(place.verdict)
        self.figures.jobs += verdict.jobs
        for violation in verdict.violations:
            self._wrong(labels, violation)
        return verdict

    def _wrong(self, labels: dict[str, Point], violation: Violation) -> None:
        point = labels.get(violation.queue)
        where, path = (str(point), point.path) if point else ("somewhere", "somewhere")
        self.figures.complain(where, path, str(violation))

    def failed(self, where: str, point: Point, ended: Ended) -> None:
        how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.code}"
        self.figures.complain(where, point.path, f"{how}: {self.children.last_words()}")

    def _chosen(self) -> list[Path]:
        known = {name: path for name, path in PATHS.items() if path.owner or not self.owners}
        for name in self.wish.paths:
            if name not in known:
                raise InvalidOption(
                    option="path", reason=f"must be one of {', '.join(sorted(known))}, not {name!r}"
                )
        return [known[name] for name in self.wish.paths or known]


def prepare(work: Workload, place: Place) -> None:
    """In a child: the tables of a place."""
    work.at(place).make_ready()


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """SIGTERM ends a campaign as Ctrl-C does: what it made is removed. The signals that came are
    also listed, because Python drops what is raised while it forks."""
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
