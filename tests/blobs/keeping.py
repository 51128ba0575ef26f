"""A blob store as a user would write one, and what these tests look for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from outlast import StoreSettings

BRIEF = StoreSettings(blob_over=1_000)  # so that little is large
LARGE = "large " * 1_000


class Shelf:
    """In memory. It can be out of reach, or have its things aged and spoiled."""

    def __init__(self) -> None:
        self.away = False
        self.things: dict[str, tuple[bytes, float]] = {}
        self.asked = threading.Event()  # while it was out of reach

    def put(self, name: str, data: bytes) -> None:
        self._reach()
        assert name not in self.things, "a name is put once"
        self.things[name] = data, time.monotonic()

    def get(self, name: str) -> bytes | None:
        self._reach()
        found = self.things.get(name)
        return found and found[0]

    def delete(self, name: str) -> None:
        self._reach()
        self.things.pop(name, None)

    def names(self, after: str) -> Iterator[tuple[str, float]]:
        self._reach()
        folder = after[: after.index("/") + 1]
        for name in sorted(self.things):
            if name > after and name.startswith(folder):
                yield name, time.monotonic() - self.things[name][1]

    def spoil(self, part: str, data: bytes) -> None:
        for name in self.things:
            if part in name:
                self.things[name] = data, time.monotonic()

    def _reach(self) -> None:
        if self.away:
            self.asked.set()
            raise ConnectionError("the shelf is out of reach")


def files(folder: Path) -> list[str]:
    """What is kept there, without the database's own folder."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
