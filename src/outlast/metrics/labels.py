"""Names of queues and tasks as labels. Anybody who may enqueue can make up names: a bounded number
of them is told apart, each of a bounded length; all others are one."""

from __future__ import annotations

from ..model.options import LONGEST_NAME
from ..model.text import clean
from ..worker.figures import NAMES, OTHER


def label(name: object) -> str:
    """A name that any scraper can read. Escaping is the exposition's work."""
    return clean(str(name), LONGEST_NAME)


class Labels:
    """The first names are told apart for as long as this process lives, so that none of its series
    comes and goes; those that come later are `other`."""

    def __init__(self, most: int = NAMES) -> None:
        self._most = most
        self._known: dict[str, None] = {}
        self._others = False

    def __call__(self, name: object) -> str:
        told = label(name)
        if told in self._known:
            return told
        if len(self._known) >= self._most:
            self._others = True
            return OTHER
        self._known[told] = None
        return told

    @property
    def told(self) -> list[str]:
        """Every label that was given out."""
        return list(dict.fromkeys([*self._known, *([OTHER] if self._others else [])]))
