"""A worker's pending writes about circuit breakers: openings, closes and failed probes.

A failed write is repeated later, and delays no outcome and no claim.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol

from ..loops import Backoff
from ..model.breaker import Circuit, CloseReason, OpenBreaker
from ..model.claim import ClaimKey
from ..model.humanize import format_duration
from ..model.safe_text import error_summary
from ..ops.breakers import (
    close_breaker,
    close_without_jobs,
    closed_by_probe,
    open_breaker,
    probe_failed,
)
from ..store import Store
from .row_errors import is_away, is_busy
from .worker_metrics import MAX_NAMES, OTHER_NAME

log = logging.getLogger("outlast.worker")

MAX_FAILED_PROBES = 1000  # waiting to be written
MAX_VANISHED = 10_000  # closed by other processes, reason not read yet
MAX_CHECKS = 10_000  # times of checks that are kept
MAX_REASON_READS = 10  # per pass
JOB_CHECK_INTERVAL_S = 2.0  # between checks whether a job is left for a due probe
MAX_JOB_CHECKS = 10  # breakers checked per pass


class KnownBreakers(Protocol):
    """The worker's knowledge of open breakers, which a write changes."""

    @property
    def open(self) -> Mapping[Circuit, OpenBreaker]: ...

    def written(self, opened: OpenBreaker) -> None: ...

    def closed_by_probe(self, circuit: Circuit, at: float) -> None: ...

    def forget(self, circuit: Circuit) -> None: ...


@dataclass(frozen=True, slots=True)
class _Opening:
    opened: OpenBreaker
    message: str
    wait: float


@dataclass(frozen=True, slots=True)
class _FailedProbe:
    opened: OpenBreaker
    hold: ClaimKey
    message: str
    wait: float


class BreakerWrites:
    """Writes to make, retried until they succeed; `worker` returns this worker's registered id."""

    def __init__(self, worker: Callable[[], str], known: KnownBreakers) -> None:
        self._worker = worker
        self._known = known
        self.opening: dict[Circuit, _Opening] = {}
        self.closing: dict[Circuit, OpenBreaker] = {}
        self._failed: list[_FailedProbe] = []
        self._vanished: dict[Circuit, float] = {}  # closed by other processes, reason not read yet
        self.openings: Counter[Circuit] = Counter()  # by this worker
        self._write_at = 0.0  # monotonic: earliest next write
        self._write_backoff = Backoff()
        self._checked_at: dict[Circuit, float] = {}  # last check whether a job is left

    def add_opening(self, opened: OpenBreaker, message: str, wait: float) -> None:
        self.opening[opened.circuit] = _Opening(opened, message, wait)
        self.closing.pop(opened.circuit, None)

    def add_failed_probe(
        self, opened: OpenBreaker, hold: ClaimKey, message: str, wait: float
    ) -> None:
        if len(self._failed) < MAX_FAILED_PROBES:
            self._failed.append(_FailedProbe(opened, hold, message, wait))

    def add_vanished(self, circuit: Circuit) -> None:
        """Another process closed this breaker."""
        if len(self._vanished) >= MAX_VANISHED:
            self._vanished.clear()
        self._vanished[circuit] = time.monotonic()

    @property
    def pending(self) -> bool:
        """Whether there is something to write now."""
        waits = bool(self.opening or self.closing or self._failed or self._vanished)
        return waits and time.monotonic() >= self._write_at

    async def write(self, store: Store) -> bool:
        """Write pending changes; returns whether other workers should poll. Raises only if the
        database is unavailable: any other error concerns one breaker."""
        vanished = islice(self._vanished.items(), MAX_REASON_READS)
        writes = [
            *(partial(self._write_opening, store, *one) for one in self.opening.items()),
            *(partial(self._write_closing, store, *one) for one in self.closing.items()),
            *(partial(self._write_failed, store, one) for one in self._failed),
            *(partial(self._read_reason, store, *one) for one in vanished),
        ]
        changed = failed = False
        for write in writes:
            try:
                changed |= await write()
            except Exception as error:
                if is_away(error):
                    raise
                failed = True
                log.warning("a breaker cannot be written: %s", error_summary(error))
        if failed:
            self._write_at = time.monotonic() + self._write_backoff.failed()
        else:
            self._write_backoff.succeeded()
        return changed

    async def _write_failed(self, store: Store, probe: _FailedProbe) -> bool:
        """Record a failed probe. A refused write is not repeated: the wait that began with the
        probe holds."""
        try:
            await store.arun(probe_failed, probe.opened, probe.hold, probe.message, probe.wait)
        except Exception as error:
            if is_away(error):
                raise
            self._failed.remove(probe)
            raise
        self._failed.remove(probe)
        return False

    async def _write_opening(self, store: Store, circuit: Circuit, opening: _Opening) -> bool:
        worker = self._worker()
        try:
            standing, ours = await store.arun(
                open_breaker, opening.opened, opening.message, worker, opening.wait
            )
        except Exception as error:
            if not is_away(error) and not is_busy(error):  # not stored, it would never be probed
                self.opening.pop(circuit, None)
                self._known.forget(circuit)
            raise
        self.opening.pop(circuit, None)
        if standing is None:  # another worker closed it in between
            self._known.forget(circuit)
            return False
        self._known.written(standing)
        if ours:
            many = circuit not in self.openings and len(self.openings) >= MAX_NAMES
            self.openings[Circuit(OTHER_NAME, OTHER_NAME) if many else circuit] += 1
            reason = opening.opened.kind + (f": {opening.message}" if opening.message else "")
            log.warning(
                "breaker open: queue %r, task %r: %s; its jobs wait unspent, next probe in %s",
                *circuit, reason, format_duration(opening.wait),
            )  # fmt: skip
        return ours

    async def _write_closing(self, store: Store, circuit: Circuit, opened: OpenBreaker) -> bool:
        closed = await store.arun(close_breaker, *circuit, opened.opening, self._worker())
        self.closing.pop(circuit, None)
        _log_closed(circuit, closed, CloseReason.PROBE)
        self._known.forget(circuit)
        self._known.closed_by_probe(circuit, time.monotonic())
        return bool(closed)

    async def _read_reason(self, store: Store, circuit: Circuit, at: float) -> bool:
        """Read why another process closed the breaker: only after a successful probe do failures
        count as attempts. A failed read is not repeated."""
        self._vanished.pop(circuit, None)
        if await store.arun(closed_by_probe, circuit):
            self._known.closed_by_probe(circuit, at)
        return False

    async def retire(self, store: Store, due_since: Mapping[Circuit, float]) -> None:
        """Close breakers without a job for a probe; `due_since`: when their probe became due."""
        for circuit in self._unprobed(due_since):
            self._checked_at[circuit] = time.monotonic()
            opened = self._known.open[circuit]
            try:
                closed = await store.arun(close_without_jobs, opened, self._worker())
            except Exception as error:
                if is_away(error):
                    raise
                log.warning("a breaker cannot be closed: %s", error_summary(error))
                continue
            if closed:
                _log_closed(circuit, closed, CloseReason.NO_JOB)
                self._known.forget(circuit)

    def _unprobed(self, due_since: Mapping[Circuit, float]) -> list[Circuit]:
        """Breakers to check for jobs now, the longest unchecked first."""
        if not due_since or len(self._checked_at) > MAX_CHECKS:
            self._checked_at.clear()
        if not due_since:
            return []
        long_ago, asked_at = time.monotonic() - JOB_CHECK_INTERVAL_S, self._checked_at
        found = [
            (asked_at.get(circuit, since), circuit)
            for circuit, since in due_since.items()
            if circuit in self._known.open and circuit not in self.opening
        ]
        return [one for at, one in sorted(found)[:MAX_JOB_CHECKS] if at <= long_ago]


def _log_closed(circuit: Circuit, closed: Sequence[tuple[str, float]], reason: CloseReason) -> None:
    for task, seconds in closed:
        log.warning("breaker closed: queue %r, task %r: %s; it was open for %s",
                    circuit.queue, task, reason, format_duration(seconds))  # fmt: skip
