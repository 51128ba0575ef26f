"""How many points a path has is found by walking it once, with a trap that only counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path as FilePath

from .campaign import Campaign
from .children import Ended
from .paths import PATHS, perform
from .place import Place
from .points import Point, batches
from .stage import Stage
from .trap import Trap
from .workload import Workload

Labels = dict[str, Point]
Tracer = Callable[[Workload, str, str, float, FilePath], None]


class Tracing:
    """One walk on every path, in places of their own; `look` is asked to look at what is left."""

    def __init__(
        self,
        campaign: Campaign,
        lease: float,
        look: Callable[[Place, Labels], None],
        tracer: Tracer | None = None,
    ) -> None:
        self.campaign = campaign
        self.tracer = tracer or trace
        self.lease = lease
        self.look = look
        self.words: dict[str, list[str]] = {}

    def run(self) -> dict[str, list[str]]:
        """What each path says to the database, exchange by exchange."""
        here = "sqlite" if self.campaign.site.is_sqlite else "postgres"
        paths = [path for path in self.campaign.paths if path.only in (None, here)]
        for batch in batches([Point(path.name, 0, False) for path in paths], len(paths)):
            place, labels = self.campaign.place(), {f"t{n}": p for n, p in enumerate(batch)}
            for label, point in labels.items():
                self.campaign.figures.row(point.path)
                file = place.folder / f"{point.path}.words"
                body = partial(self.tracer, self.campaign.work, label, point.path, self.lease, file)
                self.campaign.start(body, partial(self._traced, point, file))
            while self.campaign.running:
                self.campaign.step()
            self.look(place, labels)
        return self.words

    def _traced(self, point: Point, file: FilePath, ended: Ended) -> None:
        self.campaign.running -= 1
        if not ended.well:
            self.campaign.failed(f"{point.path}, with nobody killed", point, ended)
            return
        self.words[point.path] = json.loads(file.read_text())
        self.campaign.figures.row(point.path).points = 2 * len(self.words[point.path])


def trace(work: Workload, label: str, path: str, lease: float, words: FilePath) -> None:
    """In a child: walk to the end, and tell what was said to the database."""
    trap = Trap()
    trap.install()
    perform(PATHS[path], Stage(work, label, lease, trap))
    words.write_text(json.dumps(trap.words))
