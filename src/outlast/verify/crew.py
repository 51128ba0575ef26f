"""Processes of one kind that a campaign keeps at work, hurts, and replaces."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

from .children import Children, Ended

Body = Callable[[int], object]  # is told which one it is, counted from 1
Complain = Callable[[str], None]


class Crew:
    """Whoever ends without having been told to is complained about."""

    def __init__(self, children: Children, name: str, body: Body, complain: Complain) -> None:
        self.name = name
        self.at_work: list[int] = []  # by process id
        self.frozen: list[int] = []  # those of them that are stopped
        self.expected: dict[int, int] = {}  # which signal (0: none) shall have ended those that go
        self._children, self._body, self._complain = children, body, complain
        self._started = 0

    def __len__(self) -> int:
        return len(self.at_work)

    @property
    def awake(self) -> list[int]:
        return [pid for pid in self.at_work if pid not in self.frozen]

    def fill(self, number: int) -> None:
        """Start as many as are missing."""
        while len(self.at_work) < number:
            self._started += 1
            pid = self._children.start(partial(self._body, self._started), self._ended)
            self.at_work.append(pid)

    def kill(self, pid: int) -> None:
        self._dismiss(pid, signal.SIGKILL, signal.SIGKILL)

    def ask_to_go(self, pid: int) -> None:
        """It is to hand in what it has, and to end well."""
        self._dismiss(pid, signal.SIGTERM, 0)

    def freeze(self, pid: int) -> None:
        self.frozen.append(pid)
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, pid: int) -> None:
        if pid in self.frozen:
            self.frozen.remove(pid)
            os.kill(pid, signal.SIGCONT)

    def let_go(self) -> None:
        """Whoever is left ends by itself, because it is told so in another way."""
        self.expected |= dict.fromkeys(self.at_work, 0)
        self.at_work.clear()

    def _dismiss(self, pid: int, number: int, expected: int) -> None:
        self.at_work.remove(pid)
        self.expected[pid] = expected
        os.kill(pid, number)
        self.thaw(pid)

    def _ended(self, ended: Ended) -> None:
        if ended.stopped:
            return
        expected = self.expected.pop(ended.pid, None)
        if ended.pid in self.at_work:
            self.at_work.remove(ended.pid)
        if expected is None or (ended.signal, ended.code) != (expected, 0):
            how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.code}"
            told = "by itself" if expected is None else "otherwise than it was asked to"
            said = self._children.last_words()
            self._complain(f"{self.name} {ended.pid} ended {told}, by {how}: {said}")
