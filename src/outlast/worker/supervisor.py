"""Supervisor of several worker processes: starts, restarts and stops them together.

    starts ──▶ runs ──▶ dies ──▶ waits 1 … 30 s ──▶ starts …          each child separately
                │ SIGTERM
                └──▶ drains ──▶ ends, or is killed grace + 1 s later   all children, one deadline

The supervisor has one thread and starts fresh interpreters: it never forks a process with threads.
Children are in process groups of their own, so that a Ctrl-C reaches them once, through the
supervisor. They hold its parent pipe, so that they do not outlive it.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from ..loops import Backoff
from ..model.ids import INSTANCE_VARIABLE, new_instance_id
from .parent_pipe import ParentPipe

log = logging.getLogger("outlast.supervisor")

STABLE_AFTER_S = 30.0  # seconds after which a child's earlier deaths no longer count
KILL_MARGIN_S = 1.0  # seconds beyond the grace time to report outcomes; then SIGKILL
BEAT_INTERVAL_S = 1.0  # seconds between idle passes, which show that the supervisor is alive
NOTHING_BESIDE = nullcontext()
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

OnExit = Callable[[str, int], None]  # a child's instance id, and its exit code (−9: by signal 9)
ChildEnvironment = Callable[[int], dict[str, str]]  # additional variables of the n-th child


def supervise(
    command: Sequence[str], processes: int, grace: float, on_exit: OnExit | None = None
) -> int:
    """Keep `processes` children running until SIGTERM or SIGINT; the exit code is 0 if all of them
    ended by themselves. `on_exit` is called for every child that ended."""
    return Supervisor(command, processes, grace, on_exit).run()


class Child:
    """One slot of the supervisor, with its process, if it has one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.instance = ""  # the id of its worker, whose jobs are reclaimed at its death
        self.start_at = 0.0  # when a vacant slot is filled
        self.exit_code: int | None = None  # of a child that has finished and is not restarted
        self.started_at = 0.0
        self.first_death = 0.0  # of the current series of deaths
        self.backoff = Backoff()

    def start(
        self, command: Sequence[str], pipe: ParentPipe, environment: Mapping[str, str]
    ) -> None:
        self.started_at = time.monotonic()
        self.instance = new_instance_id()
        try:
            self.process = subprocess.Popen(
                command,
                env={**pipe.environment(), **environment, INSTANCE_VARIABLE: self.instance},
                pass_fds=[pipe.reading],
                process_group=0,
            )
        except OSError as error:
            self.died(f"cannot be started: {error}")

    def died(self, how: str) -> None:
        """Leave the slot vacant for a while: longer each time, unless the last child was stable."""
        now = time.monotonic()
        self.process = None
        if now - self.started_at >= STABLE_AFTER_S:
            self.backoff.succeeded()
        if self.backoff.failures == 0:
            self.first_death = now
        wait = self.backoff.failed()
        self.start_at = now + wait
        times, span = self.backoff.failures, now - self.first_death
        what = "died" if times == 1 else f"has died {times} times in {span:.0f} s"
        log.warning("worker %d %s (%s); next start in %.1f s", self.number, what, how, wait)

    def signal(self, number: int) -> None:
        """Send a signal, only to a child that is not reaped yet: its pid cannot be reused."""
        if self.process is not None:
            self.process.send_signal(number)


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        grace: float,
        on_exit: OnExit | None = None,
        child_environment: ChildEnvironment = lambda _: {},
    ) -> None:
        self.command = command
        self.grace = grace
        self.children = [Child(number) for number in range(1, processes + 1)]
        self.on_exit = on_exit
        self.child_environment = child_environment
        self.exits: Counter[str] = Counter()  # of children, by kind of end
        self.beat_at = time.monotonic()
        self._signals_received = 0  # requests to stop
        self._signals_handled = 0
        self._deadline = float("inf")
        self._killed = False
        self.until_idle = False  # a child that exits by itself has finished, and is not restarted

    @property
    def _vacant(self) -> list[Child]:
        """Slots to be filled."""
        return [c for c in self.children if c.process is None and c.exit_code is None]

    @property
    def _goes_on(self) -> bool:
        return bool(self.running or (self._vacant and not self._signals_received))

    @property
    def running(self) -> list[Child]:
        return [child for child in self.children if child.process is not None]

    def run(self, beside: AbstractContextManager[None] = NOTHING_BESIDE) -> int:
        """Run the children until a signal, with the context `beside` open. Signal handlers are
        installed before it opens, because it may tell other processes that the start is over."""
        pipe = ParentPipe()
        try:
            with self._wakeups() as wait, beside:
                while self._goes_on:
                    self.beat_at = time.monotonic()
                    self._step(pipe)
                    wait(self._next_event())
                    self._reap()
        finally:
            for child in self.running:  # only if something above failed
                child.signal(signal.SIGKILL)
            pipe.close()
        log.info("all workers have ended")
        return 1 if self._killed or any(child.exit_code for child in self.children) else 0

    def _step(self, pipe: ParentPipe) -> None:
        now = time.monotonic()
        if self._signals_handled < self._signals_received:
            self._signals_handled += 1
            self._forward_signals()
        elif now >= self._deadline:
            self._kill_remaining()
        elif not self._signals_received:
            for child in self._vacant:
                if now >= child.start_at:
                    child.start(self.command, pipe, self.child_environment(child.number))

    def _forward_signals(self) -> None:
        """Drain at the first signal, skip the grace time at the second, with one deadline for all.
        Children always get SIGTERM: at SIGINT, a starting interpreter prints a traceback."""
        span = self.grace + KILL_MARGIN_S if self._signals_handled == 1 else KILL_MARGIN_S
        self._deadline = min(self._deadline, time.monotonic() + span)
        log.info("stopping %d workers within %.1f s", len(self.running), span)
        for child in self.running:
            child.signal(signal.SIGTERM)

    def _kill_remaining(self) -> None:
        for child in self.running:
            log.error("worker %d did not end in time: killed", child.number)
            child.signal(signal.SIGKILL)
        self._killed = True
        self._deadline = float("inf")

    def _reap(self) -> None:
        for child in self.running:
            assert child.process is not None
            code = child.process.poll()
            if code is None:
                continue
            self.exits["signal" if code < 0 else "exit"] += 1
            if self._signals_received:
                child.process = None
            elif self.until_idle and code in (0, 1):
                child.process, child.exit_code = None, code
            else:
                child.died(f"signal {-code}" if code < 0 else f"exit code {code}")
            if self.on_exit is not None:
                try:
                    self.on_exit(child.instance, code)
                except Exception:
                    log.exception("the handling of the exit of worker %d failed", child.number)

    def _next_event(self) -> float:
        """Seconds until the next start, deadline or beat."""
        if self._signals_handled < self._signals_received:
            return 0.0
        moments = [self._deadline]
        if not self._signals_received:
            moments += [child.start_at for child in self._vacant]
        soonest = min(moments)
        return min(BEAT_INTERVAL_S, max(0.0, soonest - time.monotonic()))

    def _on_signal(self, *_: object) -> None:
        self._signals_received += 1

    @contextmanager
    def _wakeups(self) -> Iterator[Callable[[float], None]]:
        """A wait that a signal or the end of a child interrupts, even one just before it."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        before = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        old = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(reading, selectors.EVENT_READ)

            def wait(seconds: float) -> None:
                selector.select(seconds)
                with suppress(BlockingIOError):
                    os.read(reading, 4096)

            try:
                yield wait
            finally:
                signal.set_wakeup_fd(old)
                for number, handler in before.items():
                    signal.signal(number, handler)
                os.close(reading)
                os.close(writing)
