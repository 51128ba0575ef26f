"""Offsets of partitions: which one may be committed, because everything before it is stored."""

from __future__ import annotations

from collections.abc import Iterable

Partition = tuple[str, int]  # topic and number


class Offsets:
    """The offsets that were received and are not stored, for each assigned partition."""

    def __init__(self) -> None:
        self._waiting: dict[Partition, set[int]] = {}
        self._next: dict[Partition, int] = {}  # after the last one received
        self._committed: dict[Partition, int] = {}

    def received(self, partition: Partition, offset: int) -> None:
        self._waiting.setdefault(partition, set()).add(offset)
        self._next[partition] = max(self._next.get(partition, 0), offset + 1)
        self._committed.setdefault(partition, offset)  # the first offset received

    def stored(self, partition: Partition, offset: int) -> None:
        """Note a stored offset; ignored for a partition that was reassigned."""
        self._waiting.get(partition, set()).discard(offset)

    def to_commit(self) -> dict[Partition, int]:
        """The position at which each partition continues after a restart, if it has changed."""
        positions = {
            partition: min(waiting, default=self._next[partition])
            for partition, waiting in self._waiting.items()
        }
        return {one: at for one, at in positions.items() if at > self._committed[one]}

    def committed(self, positions: dict[Partition, int]) -> None:
        for partition, offset in positions.items():
            if partition in self._committed:
                self._committed[partition] = offset

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Drop partitions that were reassigned to another consumer."""
        for partition in partitions:
            self._waiting.pop(partition, None)
            self._next.pop(partition, None)
            self._committed.pop(partition, None)
