"""`outlast verify ackloss`: the server commits, and its answer is lost with the connection.

Each path is walked once to count its commits. Then, for each of them, a child walks it through a
proxy that swallows the answer to that very commit and resets the connection. The client cannot know
what became of it: Outlast must ask again, and asking again must neither do it twice nor be taken
for a loss. Where the transaction is the caller's own, the caller is told, and all of it stands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

from .children import Ended
from .line import Upstream
from .network import SURVIVED, Networked, by_proxy, callers_loss, ended
from .paths import PATHS, perform
from .points import Point
from .stage import Stage
from .strikes import LEASE
from .tracing import Tracer
from .trap import Trap
from .wire import Commits
from .workload import Workload


@dataclass(frozen=True, slots=True)
class Loss(Point):
    word: str = ""

    def __str__(self) -> str:
        return f"{self.path}: the answer to commit {self.at} is lost ({self.word})"


class AckLoss(Networked):
    name = "ackloss"
    columns = ("lost", "survived")
    goal = "lost"
    turns = 4  # most paths commit once or twice, and a place costs more than that

    def tracer(self) -> Tracer:
        return partial(count, self.upstream)

    def points(self, path: str, words: Sequence[str]) -> Sequence[Point]:
        return [Loss(path, at, True, word) for at, word in enumerate(words, 1)]

    def walk(self, label: str, point: Point) -> Callable[[], None]:
        return partial(walk, self.upstream, self.work, label, point)

    def struck(self, point: Point, ended: Ended) -> None:
        if ended.well:
            self.figures.row(point.path).add("lost")
        elif ended.code == SURVIVED:
            self.survived(point)
        else:
            self.failed(str(point), point, ended)


def count(upstream: Upstream, work: Workload, label: str, path: str, lease: float,
          words: FilePath) -> None:  # fmt: skip
    """In a child: walk to the end, and tell what was committed."""
    trap = Trap()
    commits = Commits(lambda: trap.armed)
    with by_proxy(work, upstream, commits):
        perform(PATHS[path], Stage(work, label, lease, trap))
    words.write_text(json.dumps(commits.words))


def walk(upstream: Upstream, work: Workload, label: str, point: Point) -> None:
    """In a child: walk a path, and lose an answer on the way."""
    trap, path = Trap(), PATHS[point.path]
    commits = Commits(lambda: trap.armed, point.at)
    told = callers_loss() if path.callers else ()
    with by_proxy(work, upstream, commits), suppress(*told):
        perform(path, Stage(work, label, LEASE, trap))
    ended(commits.lost)
