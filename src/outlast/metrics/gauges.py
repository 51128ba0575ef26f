"""Gauges that other parts of a process register: a name from the catalogue and a function.

gauges = Gauges()
gauges.register("outlast_event_subscribers", lambda: len(hub))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .catalogue import CATALOGUE
from .collectors import Sample


class Gauges:
    def __init__(self) -> None:
        self._readers: dict[str, Callable[[], float]] = {}

    def register(self, name: str, read: Callable[[], float]) -> None:
        """Call this function at every scrape; it must be fast and thread-safe."""
        if CATALOGUE[name].labels:
            raise ValueError(f"{name} has labels")
        self._readers[name] = read

    def samples(self) -> Iterator[Sample]:
        for name, read in tuple(self._readers.items()):
            yield Sample(name, read())
