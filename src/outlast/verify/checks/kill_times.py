"""Kill times: when a campaign killed each process. Process ids are reused after a while."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

KILL_LAG_S = 1.0  # a process may still write between the record of its kill and the signal


class KillTimes:
    def __init__(self, *kills: tuple[int, float]) -> None:
        self._times: defaultdict[int, list[float]] = defaultdict(list)
        for pid, at in kills:
            self.record(pid, at)

    def record(self, pid: int, at: float) -> None:
        self._times[pid].append(at)

    def end_of(self, pid: int, started: float) -> float:
        """When a run of this process ended that it did not end itself: at its kill, or at its start
        if no kill is known."""
        times = self._times.get(pid, [])
        index = bisect_left(times, started - KILL_LAG_S)
        return max(started, times[index]) if index < len(times) else started
