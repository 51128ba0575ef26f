"""Names of queues and tasks as labels. A caller that may enqueue can invent names, so a bounded
number of them gets labels of its own, each of bounded length; all others share one."""

from __future__ import annotations

from ..model.options import MAX_NAME_CHARS
from ..model.safe_text import storable_text
from ..worker.worker_metrics import MAX_NAMES, OTHER_NAME


def label(name: object) -> str:
    """A name that any scraper can read. Escaping is left to the exposition."""
    return storable_text(str(name), MAX_NAME_CHARS)


class Labels:
    """The first names keep labels of their own for the life of this process, so that no series
    comes and goes; later names are `other`."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._known: dict[str, None] = {}
        self._others = False

    def __call__(self, name: object) -> str:
        label_text = label(name)
        if label_text in self._known:
            return label_text
        if len(self._known) >= self._limit:
            self._others = True
            return OTHER_NAME
        self._known[label_text] = None
        return label_text

    @property
    def given(self) -> list[str]:
        """Every label in use."""
        return list(dict.fromkeys([*self._known, *([OTHER_NAME] if self._others else [])]))
