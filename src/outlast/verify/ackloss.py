"""`outlast verify ackloss`: the server commits, and its answer is lost with the connection.

Each path is walked once to count its commits. Then, for each of them, a child walks it through a
proxy that swallows the answer to that very commit and resets the connection. The client cannot know
what became of it: Outlast must ask again, and asking again must neither do it twice nor be taken
for a loss. Where the transaction is the caller's own, the caller is told, and all of it stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

from .children import Ended
from .line import Upstream
from .network import Networked, by_proxy, callers_loss
from .paths import PATHS, perform
from .place import Place
from .points import Point
from .stage import Stage
from .strikes import LEASE
from .tracing import Labels, Tracer
from .trap import Trap
from .wire import Commits
from .workload import Workload

SWEEPS = ("promote", "expire", "reclaim")  # when traced, another path may have swept before
ERRAND = 10  # points of short paths for one child


@dataclass(frozen=True, slots=True)
class Loss(Point):
    word: str = ""

    def __str__(self) -> str:
        return f"{self.path}: the answer to commit {self.at} is lost ({self.word})"


class AckLoss(Networked):
    name = "ackloss"
    columns = ("lost", "survived")
    goal = "lost"
    turns = 8  # most paths commit once or twice, and a place costs more than that

    def tracer(self) -> Tracer:
        return partial(count, self.upstream)

    def points(self, path: str, words: Sequence[str]) -> Sequence[Point]:
        if not words and path in SWEEPS:
            words = ["its own"]
        return [Loss(path, at, True, word) for at, word in enumerate(words, 1)]

    def errands(self, batch: list[Point]) -> Iterator[list[Point]]:
        """Nobody dies here, so one child walks several of the short paths."""
        quick = [point for point in batch if not PATHS[point.path].most]
        yield from ([point] for point in batch if PATHS[point.path].most)
        for start in range(0, len(quick), ERRAND):
            yield quick[start : start + ERRAND]

    def send(self, place: Place, named: Labels) -> None:
        told = place.folder / f"{next(iter(named))}.lost"
        body = partial(walk, self.upstream, self.work, named, told)
        self.start(body, partial(self._walked, named, told))

    def _walked(self, named: Labels, told: FilePath, ended: Ended) -> None:
        self.running -= 1
        lines = told.read_text().splitlines() if told.exists() else []
        lost = dict(map(json.loads, lines))
        for label, point in named.items():
            if lost.get(label):
                self.figures.row(point.path).add("lost")
            elif label in lost:
                self.survived(point)
            else:  # here it failed, and did not come to the rest
                self.failed(str(point), point, ended)
                self.started -= len(named) - len(lost) - 1
                break


def count(upstream: Upstream, work: Workload, label: str, path: str, lease: float,
          words: FilePath) -> None:  # fmt: skip
    """In a child: walk to the end, and tell what was committed."""
    trap, commits = Trap(), Commits()
    commits.aim(lambda: trap.armed)
    with by_proxy(work, upstream, commits):
        perform(PATHS[path], Stage(work, label, lease, trap))
    words.write_text(json.dumps(commits.words))


def walk(upstream: Upstream, work: Workload, named: Labels, told: FilePath) -> None:
    """In a child: walk paths, and lose an answer on each; tell of each whether it was lost."""
    commits = Commits()
    with by_proxy(work, upstream, commits), told.open("a", buffering=1) as lines:
        for label, point in named.items():
            trap, path = Trap(), PATHS[point.path]
            commits.aim(partial(getattr, trap, "armed"), point.at)
            with suppress(*(callers_loss() if path.callers else ())):
                perform(path, Stage(work, label, LEASE, trap))
            lines.write(json.dumps([label, commits.lost]) + "\n")
