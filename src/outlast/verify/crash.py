"""`outlast verify crash`: a real process is killed before and after every statement of every path.

Each child arms its trap, acts, and dies there by SIGKILL.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from .children import Ended
from .paths import PATHS, perform
from .points import Point, points_of
from .stage import Stage
from .strikes import LEASE, StruckAlone
from .tracing import Tracer, trace
from .trap import Trap
from .workload import Workload


class Crash(StruckAlone):
    name = "crash"
    columns = ("kills", "survived")
    goal = "kills"
    # Who opens the file first after a kill reads the whole log.
    settings: ClassVar[dict[str, Any]] = {"checkpoint_pages": 200}

    def tracer(self) -> Tracer:
        return trace

    def points(self, path: str, words: Sequence[str]) -> Sequence[Point]:
        return points_of(path, words)

    def walk(self, label: str, point: Point) -> Callable[[], None]:
        return partial(walk, self.work, label, point)

    def struck(self, point: Point, ended: Ended) -> None:
        if ended.signal == signal.SIGKILL:
            self.figures.row(point.path).add("kills")
        elif ended.well:
            self.survived(point)
        else:
            self.failed(str(point), point, ended)


def walk(work: Workload, label: str, point: Point) -> None:
    """In a child: walk a path until the trap strikes."""
    trap = Trap(point.at, point.after)
    trap.install()
    perform(PATHS[point.path], Stage(work, label, LEASE, trap))
