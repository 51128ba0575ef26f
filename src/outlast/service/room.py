"""Room for so many at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Room:
    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    @contextmanager
    def one_more(self) -> Iterator[bool]:
        """Whether there was room; if so, it is taken for as long as this lasts."""
        if self.taken >= self.most:
            yield False
            return
        self.taken += 1
        try:
            yield True
        finally:
            self.taken -= 1
