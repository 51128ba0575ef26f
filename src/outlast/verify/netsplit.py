"""`outlast verify netsplit`: the network falls silent, slows down or breaks, in the middle of it.

    silence   nothing arrives any more, in either direction, and nobody is told
    pause     the same for a moment; then all that was held back arrives
    slow      from now on everything takes longer
    reset     the connection breaks, and what was under way is lost
    torn      half of it arrives, then the connection breaks
    outage    every connection breaks, and for a moment there is no new one

Each path is walked once to count what passes the line; then, for each of these, a child walks it
and meets one of the faults there. Every call must come back in time, with an answer or an error of
ours; and afterwards everything recovers, as after a crash.
"""

from __future__ import annotations

import faulthandler
import json
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from ..model.errors import OutlastError
from .campaign import Wish
from .checker import Violation
from .children import Ended
from .figures import Figures
from .ledger import Ledger
from .line import Upstream
from .network import SURVIVED, Networked, by_proxy, callers_loss, ended
from .paths import PATHS, perform
from .place import Place
from .points import Point
from .proxy import Proxy
from .recovery import Verdict
from .stage import Stage
from .stopwatch import Called, Stopwatch, calls, overdue
from .strikes import LEASE, StruckAlone
from .tracing import Labels, Tracer
from .trap import Trap
from .workload import Workload

KINDS = ("silence", "pause", "slow", "reset", "torn", "outage")
LONGEST = 5.0  # seconds for any call
# So that a connection (2 s at least, says libpq) and an answer fit, on a busy machine too.
TIGHT: dict[str, Any] = {"deadline": 1.5, "connect_timeout": 2.0}
PATIENCE = 4.0  # seconds a worker tries
HANGS = 25.0  # seconds after which a walk, of few calls, hangs for certain; then it says where
EACH = 24  # points of one path in a round


@dataclass(frozen=True, slots=True)
class Split(Point):
    kind: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.path}: {self.kind} ({self.seconds:.2f} s) at chunk {self.at}"


class NetSplit(StruckAlone, Networked):
    name = "netsplit"
    columns = ("splits", *KINDS, "survived")
    goal = "splits"
    crowd = 12  # most of them wait for nothing

    def __init__(self, wish: Wish, watch: Callable[[Figures], None] = lambda _: None) -> None:
        super().__init__(wish, watch)
        self.slowest = Called("", "none", 0.0, "")
        self.calls = 0

    def tracer(self) -> Tracer:
        return partial(count, self.upstream)

    def points(self, path: str, words: Sequence[str]) -> Sequence[Point]:
        """Some of all moments and faults. A connection of the caller's own has no deadline of ours:
        silence would not end."""
        luck = random.Random(f"{self.seed} {path}")
        kinds = [kind for kind in KINDS if kind != "silence" or not PATHS[path].callers]
        every = [(at, kind) for at in range(1, len(words) + 1) for kind in kinds]
        chosen = luck.sample(every, min(len(every), EACH))
        return [Split(path, at, False, kind, luck.uniform(*SPANS[kind])) for at, kind in chosen]

    def walk(self, label: str, point: Point) -> Callable[[], None]:
        return partial(walk, self.upstream, self.work, label, point)

    def struck(self, point: Point, ended: Ended) -> None:
        row = self.figures.row(point.path)
        if ended.well and isinstance(point, Split):
            row.add("splits")
            row.add(point.kind)
        elif ended.code == SURVIVED:
            self.survived(point)
        else:
            self.failed(str(point), point, ended)

    def examine(self, place: Place) -> Iterable[Violation]:
        made = calls(Ledger(place.ledger).read())
        slowest = max(made, key=lambda call: call.seconds, default=self.slowest)
        said = [len(made), slowest.label, slowest.name, slowest.seconds, slowest.told]
        _calls(place).write_text(json.dumps(said))
        return list(overdue(made, LONGEST))

    def judged(self, place: Place, labels: Labels, ended: Ended) -> Verdict | None:
        verdict = super().judged(place, labels, ended)
        if verdict is not None:
            number, *said = json.loads(_calls(place).read_text())
            self.calls += number
            if (slowest := Called(*said)).seconds > self.slowest.seconds:
                self.slowest = slowest
        self.figures.facts = {
            "calls": self.calls,
            "slowest_call": f"{self.slowest.name}, {self.slowest.seconds:.2f} s"
            f" ({self.slowest.told})",
        }
        return verdict


# How long a fault of each kind lasts (or, if it is slow, how much longer each way takes).
SPANS = {
    "silence": (0.0, 0.0),
    "pause": (0.2, 1.4),
    "slow": (0.02, 0.2),
    "reset": (0.0, 0.0),
    "torn": (0.0, 0.0),
    "outage": (0.1, 1.0),
}


class Chunks:
    """An inspector for the proxy: counts what passes while armed, and strikes at number `at`."""

    def __init__(self, armed: Callable[[], bool], split: Split | None = None) -> None:
        self.armed = armed
        self.split = split
        self.words: list[str] = []
        self.struck = False
        self.proxy: Proxy | None = None
        self._counting = threading.Lock()

    def __call__(self, line: int, data: bytes, answer: bool) -> bytes:
        if not self.armed():
            return data
        with self._counting:
            self.words.append("answer" if answer else "request")
            due = self.split is not None and len(self.words) == self.split.at
            self.struck = self.struck or due
        return self._strike(data) if due else data

    def _strike(self, data: bytes) -> bytes:
        split, proxy = self.split, self.proxy
        if split is None or proxy is None:
            return data
        match split.kind:
            case "silence":
                proxy.freeze()
            case "pause":
                proxy.freeze()
                _later(split.seconds, proxy.thaw)
            case "slow":
                proxy.delay(split.seconds)
            case "outage":
                proxy.refuse()
                _later(split.seconds, proxy.accept)
                return b""
            case "reset":
                return b""
            case "torn":
                return data[: len(data) // 2]
        return data


def _later(seconds: float, then: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, then)
    timer.daemon = True
    timer.start()


def count(upstream: Upstream, work: Workload, label: str, path: str, lease: float,
          words: FilePath) -> None:  # fmt: skip
    """In a child: walk to the end, and tell what passed the line."""
    trap = Trap()
    chunks = Chunks(lambda: trap.armed)
    with by_proxy(work, upstream, chunks):
        perform(PATHS[path], Stage(work, label, lease, trap))
    words.write_text(json.dumps(chunks.words))


def walk(upstream: Upstream, work: Workload, label: str, point: Point) -> None:
    """In a child: walk a path whose network breaks; whatever is told by an error of ours is good,
    if it is told in time."""
    faulthandler.dump_traceback_later(HANGS, exit=True, file=2)
    trap, path = Trap(), PATHS[point.path]
    split = point if isinstance(point, Split) else None
    chunks = Chunks(lambda: trap.armed, split)
    theirs = callers_loss() if path.callers else ()
    work.ol.store.settings = replace(work.ol.store.settings, **TIGHT)
    with by_proxy(work, upstream, chunks) as chunks.proxy, suppress(OutlastError, *theirs):
        stage = Stage(work, label, LEASE, trap)
        stage.patience = PATIENCE
        Stopwatch(work.ledger, label, lambda: chunks.struck, (*theirs, *path.raises)).install()
        perform(path, stage)
    ended(chunks.struck)


def _calls(place: Place) -> FilePath:
    return place.folder.with_suffix(".calls")
