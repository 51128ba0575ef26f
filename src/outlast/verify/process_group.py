"""Process groups: processes of one kind that a campaign kills, freezes and replaces."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from functools import partial

from .children import ChildExit, Children

Body = Callable[[int], object]  # called with the number of the process, from 1
ReportProblem = Callable[[str], None]


class ProcessGroup:
    """Processes of one kind; an unexpected end is reported."""

    def __init__(self, children: Children, name: str, body: Body, report: ReportProblem) -> None:
        self.name = name
        self.running: list[int] = []  # process ids
        self.frozen: list[int] = []  # ids of stopped processes
        self.expected_signals: dict[
            int, int
        ] = {}  # the expected signal (0: none) of each process that should end
        self._children, self._body, self._report = children, body, report
        self._started = 0
        self._at_work: set[int] = set()  # ids of processes that have done some work

    def __len__(self) -> int:
        return len(self.running)

    @property
    def awake(self) -> list[int]:
        return [pid for pid in self.running if pid not in self.frozen]

    def start_missing(self, number: int) -> None:
        """Start missing processes."""
        while len(self.running) < number:
            self._started += 1
            pid = self._children.start(partial(self._body, self._started), self._child_ended)
            self.running.append(pid)

    def saw_working(self, pid: int) -> None:
        self._at_work.add(pid)

    def victim(self, rng: random.Random) -> int | None:
        """A process that has done some work, if at least two have: on a machine where starts take
        longer than the interval between kills, no process would be left to work."""
        at_work = sorted(self._at_work.intersection(self.running))
        return rng.choice(at_work) if len(at_work) > 1 else None

    def kill(self, pid: int) -> None:
        self._send_signal(pid, signal.SIGKILL, signal.SIGKILL)

    def terminate(self, pid: int) -> None:
        """Stop a process: it should report its outcomes, and exit with 0."""
        self._send_signal(pid, signal.SIGTERM, 0)

    def freeze(self, pid: int) -> None:
        self.frozen.append(pid)
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, pid: int) -> None:
        if pid in self.frozen:
            self.frozen.remove(pid)
            os.kill(pid, signal.SIGCONT)

    def expect_exit(self) -> None:
        """Expect the exit of the remaining processes, which were asked to stop in another way."""
        self.expected_signals |= dict.fromkeys(self.running, 0)
        self.running.clear()

    def _send_signal(self, pid: int, number: int, expected: int) -> None:
        self.running.remove(pid)
        self._at_work.discard(pid)  # process ids are reused
        self.expected_signals[pid] = expected
        os.kill(pid, number)
        self.thaw(pid)

    def _child_ended(self, exit: ChildExit) -> None:
        if exit.stopped:
            return
        expected = self.expected_signals.pop(exit.pid, None)
        if exit.pid in self.running:
            self.running.remove(exit.pid)
        if expected is None or (exit.signal, exit.code) != (expected, 0):
            how = f"signal {exit.signal}" if exit.signal else f"exit code {exit.code}"
            manner = "by itself" if expected is None else "unexpectedly"
            stderr = self._children.stderr_tail()
            self._report(f"{self.name} {exit.pid} ended {manner}, by {how}: {stderr}")
