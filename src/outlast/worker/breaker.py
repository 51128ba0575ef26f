"""Circuit breakers as one worker knows them: it counts failures, opens, probes and closes.

    handler ends ─▶ ended() ─┬─ a failure in a row too many: open, here at once, then for all
                             ├─ a failure while it is open: the job goes back, unspent
                             └─ a success of an attempt begun since: close
    look for work ─▶ seen() ─── a probe is due and no job is there for it: retire(): close

What the database says comes with every look for work, so a claim costs nothing more. What cannot
be written is tried again later, and holds up no outcome and no claim meanwhile.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Protocol

from ..model.breaker import (
    RELAPSE_S,
    Breaker,
    Circuit,
    CloseReason,
    FailureStreak,
    OpenBreaker,
    Outage,
)
from ..model.humanize import format_duration
from ..model.ids import new_job_id
from ..model.job import Claim, ClaimKey
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd, Error
from ..model.safe_text import error_summary
from ..ops.breakers import (
    close_breaker,
    close_without_jobs,
    closed_by_probe,
    open_breaker,
    probe_failed,
)
from ..store import Store
from .loop import Backoff
from .row_errors import is_away, is_busy
from .worker_metrics import MAX_NAMES, OTHER_NAME

log = logging.getLogger("outlast.worker")

MAX_CIRCUITS = 10_000  # whose failures are counted at a time
MAX_FAILED_PROBES = 1000  # failed probes that wait to be written
UNPROBED_AFTER_S = 60.0  # seconds for which a probe is due and nobody makes it: nobody can
JOB_CHECK_INTERVAL_S = (
    2.0  # seconds for which it is due: is there a job left? Asked again as seldom
)
MAX_JOB_CHECKS = 10  # breakers of which this is asked in one turn
MAX_REASON_READS = 10  # closes by others whose reason is read in one turn
ANSWERED_OUTCOMES = (
    Outcome.FAILED,
    Outcome.PERMANENT,
    Outcome.UNDECODABLE,
)  # of another kind: no outage


HeldTasks = Mapping[str, frozenset[str]]


class OutageJudge(Protocol):
    """Decides whether failures are an outage's. A remote worker leaves that to its server. While
    both mappings are empty, no success has to be reported."""

    @property
    def open(self) -> Mapping[Circuit, OpenBreaker]: ...

    @property
    def streaks(self) -> Mapping[Circuit, FailureStreak]: ...

    @property
    def openings(self) -> Mapping[Circuit, int]:
        """How often this process opened each."""

    def judge_end(self, claim: Claim, ended: AttemptEnd, breaker: Breaker | None) -> AttemptEnd: ...

    def holds(self, claim: Claim) -> bool: ...

    def is_open(self, claim: Claim, kind: str = "") -> bool: ...

    def refunds(self, claim: Claim) -> bool: ...

    def trip(self, claim: Claim, breaker: Breaker, error: Error) -> OpenBreaker | None: ...


@dataclass(frozen=True, slots=True)
class _Opening:
    """One that is not in the database yet."""

    opened: OpenBreaker
    message: str
    wait: float


@dataclass(frozen=True, slots=True)
class _FailedProbe:
    opened: OpenBreaker
    hold: ClaimKey
    message: str
    wait: float


class Breakers:
    """`worker` gives the id under which this process is registered."""

    def __init__(self, worker: Callable[[], str]) -> None:
        self._worker = worker
        self.on_open: Callable[[Circuit], None] = lambda circuit: None
        self.on_close: Callable[[Circuit], None] = lambda circuit: None
        self.open: dict[Circuit, OpenBreaker] = {}
        self._held: HeldTasks | None = {}  # of those open; None: to be made anew
        self.openings: Counter[Circuit] = Counter()  # by this worker
        self.streaks: dict[Circuit, FailureStreak] = {}
        self._opening: dict[Circuit, _Opening] = {}  # to be written
        self._closing: dict[Circuit, OpenBreaker] = {}  # to be written
        self._failed: list[_FailedProbe] = []  # to be written
        self._write_at = 0.0  # by our clock: not before
        self._write_backoff = Backoff()
        self._changed_at: dict[Circuit, float] = {}  # by our clock: when it was opened or closed
        self._closed_at: dict[Circuit, float] = {}  # likewise, by a probe that succeeded
        self._vanished: dict[Circuit, float] = {}  # closed by others since: why is to be read
        self._due_since: dict[Circuit, float] = {}  # by our clock
        self._checked_at: dict[Circuit, float] = {}  # of those: whether there is a job left

    # What is held back

    @property
    def held(self) -> HeldTasks:
        """Tasks that are not to be claimed, by queue."""
        if self._held is None:
            self._held = _by_queue(self.open)
        return self._held

    @property
    def held_while_probed(self) -> HeldTasks:
        """The same for those who may not probe: without the tasks that nobody probes."""
        long_ago = time.monotonic() - UNPROBED_AFTER_S
        due_since = self._due_since
        return _by_queue(c for c in self.open if due_since.get(c, math.inf) > long_ago)

    def holds(self, claim: Claim) -> bool:
        """Whether a job in hand should go back instead of being started."""
        if not self.open:
            return False
        opened = self.open.get(_circuit(claim))
        return opened is not None and not opened.precedes(claim.started_at)

    def is_open(self, claim: Claim, kind: str = "") -> bool:
        """Whether it is open; with a kind, because of such an error."""
        opened = self.open.get(_circuit(claim))
        return opened is not None and (not kind or opened.kind == kind)

    def refunds(self, claim: Claim) -> bool:
        """Whether an inferred outage costs its jobs nothing. Not if it comes right after a probe
        has succeeded: then some of the jobs may be to blame, which must end in time. A close by
        hand says nothing of the dependency."""
        closed_at = self._closed_at.get(_circuit(claim))
        return closed_at is None or time.monotonic() - closed_at > RELAPSE_S

    # How attempts end

    def judge_end(self, claim: Claim, ended: AttemptEnd, breaker: Breaker | None) -> AttemptEnd:
        """What an end means for the circuit, and what the circuit means for the end."""
        if ended.outcome is Outcome.SUCCEEDED:
            if self.streaks or self.open:
                self._succeeded(claim)
            return ended
        circuit = _circuit(claim)
        opened = self.open.get(circuit)
        outage = ended.outage or _same_kind(opened, ended)
        if outage is None or breaker is None:
            if ended.outcome in ANSWERED_OUTCOMES:
                self.streaks.pop(circuit, None)
            return ended
        if opened is None:
            opened, charged = self._is_outage(claim, ended, outage, breaker)
            if opened is None or charged:
                return ended
        if outage is Outage.SUSPECTED and claim.max_attempts == 1:
            return ended  # to be called once, whatever happens
        return self._held_back(opened, claim, ended, breaker)

    def _is_outage(
        self, claim: Claim, ended: AttemptEnd, outage: Outage, breaker: Breaker
    ) -> tuple[OpenBreaker | None, bool]:
        """Whether it opens now; and whether this failure is charged all the same."""
        error = ended.error or {}
        if outage is Outage.CERTAIN:
            return self.trip(claim, breaker, error), False
        circuit, refunds = _circuit(claim), self.refunds(claim)
        if len(self.streaks) >= MAX_CIRCUITS:
            self.streaks.clear()
        streak = self.streaks.setdefault(circuit, FailureStreak())
        if streak.failed(claim.id) < breaker.failures:
            return None, True
        return self.trip(claim, breaker, error), not refunds

    def trip(self, claim: Claim, breaker: Breaker, error: Error) -> OpenBreaker:
        """Open it: here at once, in the database with the next turn."""
        circuit = _circuit(claim)
        if circuit in self.open:
            return self.open[circuit]
        opened = OpenBreaker(circuit, new_job_id(), error.get("type") or "Outage")
        self.open[circuit] = opened
        self._held = None
        wait = breaker.wait(0, random.random())
        self._opening[circuit] = _Opening(opened, error.get("message") or "", wait)
        self._closing.pop(circuit, None)
        self.streaks.pop(circuit, None)
        self._changed_at[circuit] = time.monotonic()
        self.on_open(circuit)
        return opened

    def _held_back(
        self, opened: OpenBreaker, claim: Claim, ended: AttemptEnd, breaker: Breaker
    ) -> AttemptEnd:
        """Unspent, and ready. One that was begun since was the probe, or as good as one: it goes
        behind the others, so that the next probe is another job."""
        error = {**(ended.error or {}), "traceback": ""}
        behind = None
        if opened.precedes(claim.started_at):
            behind, wait = 0.0, breaker.wait(opened.probes + 1, random.random())
            if len(self._failed) < MAX_FAILED_PROBES:
                failed_probe = _FailedProbe(opened, claim.claim_key, error.get("message", ""), wait)
                self._failed.append(failed_probe)
        return AttemptEnd(Outcome.RELEASED, delay=behind, error=error, quiet=True)

    def _succeeded(self, claim: Claim) -> None:
        circuit = _circuit(claim)
        self.streaks.pop(circuit, None)
        opened = self.open.get(circuit)
        if opened is not None and opened.precedes(claim.started_at):
            self._closing[circuit] = opened

    # The database

    @property
    def pending(self) -> bool:
        """Whether there is something to write now."""
        waits = bool(self._opening or self._closing or self._failed or self._vanished)
        return waits and time.monotonic() >= self._write_at

    async def write(self, store: Store) -> bool:
        """Write what is pending. Whether others should look again. An error is raised only if the
        database is away: any other is a matter of its own breaker."""
        vanished = islice(self._vanished.items(), MAX_REASON_READS)
        writes = [
            *(partial(self._write_opening, store, *one) for one in self._opening.items()),
            *(partial(self._write_closing, store, *one) for one in self._closing.items()),
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
        """One that is refused is not told again: the wait that began with the probe holds."""
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
            if not is_away(error) and not is_busy(error):  # nobody would ever probe it
                self._opening.pop(circuit, None)
                self._forget(circuit)
            raise
        self._opening.pop(circuit, None)
        self._changed_at[circuit] = time.monotonic()
        if standing is None:  # somebody closed it in between
            self._forget(circuit)
            return False
        self.open[circuit] = standing
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
        self._closing.pop(circuit, None)
        _log_closed(circuit, closed, CloseReason.PROBE)
        self._forget(circuit)
        self._closed_at[circuit] = time.monotonic()
        return bool(closed)

    async def _read_reason(self, store: Store, circuit: Circuit, at: float) -> bool:
        """Another process closed it: what it says is a reason to charge jobs only if a probe
        succeeded. One that cannot be read is not asked for again."""
        self._vanished.pop(circuit, None)
        if await store.arun(closed_by_probe, circuit):
            self._closed_at[circuit] = at
        return False

    async def retire(self, store: Store) -> None:
        """Close those whose due probe nobody makes because there is no job to make it with. Any
        worker does, also one that does not know the task."""
        for circuit in self._unprobed():
            self._checked_at[circuit] = time.monotonic()
            try:
                closed = await store.arun(close_without_jobs, self.open[circuit], self._worker())
            except Exception as error:
                if is_away(error):
                    raise
                log.warning("a breaker cannot be closed: %s", error_summary(error))
                continue
            if closed:
                _log_closed(circuit, closed, CloseReason.NO_JOB)
                self._forget(circuit)

    def _unprobed(self) -> list[Circuit]:
        """Some whose jobs are to be looked for now, the one not asked about for longest first."""
        if not self._due_since:
            self._checked_at.clear()
            return []
        long_ago, asked_at = time.monotonic() - JOB_CHECK_INTERVAL_S, self._checked_at
        found = [
            (asked_at.get(circuit, since), circuit)
            for circuit, since in self._due_since.items()
            if circuit in self.open and circuit not in self._opening
        ]
        return [one for at, one in sorted(found)[:MAX_JOB_CHECKS] if at <= long_ago]

    def update(self, breakers: Iterable[OpenBreaker], asked_at: float) -> None:
        """Take over what a look found, unless something newer is known here."""
        found = {one.circuit: one for one in breakers}
        since = self._due_since
        self._due_since = {c: since.get(c, asked_at) for c, one in found.items() if one.due}
        if not found and not self.open:
            return
        for circuit in {*found, *self.open}:
            if circuit in self._opening or self._changed_at.get(circuit, 0.0) >= asked_at:
                continue
            if circuit in found:
                new = circuit not in self.open
                self.open[circuit] = found[circuit]
                if new:
                    self._held = None
                    self.streaks.pop(circuit, None)
                    self.on_open(circuit)
            else:
                self._forget(circuit)
                self._vanished[circuit] = time.monotonic()

    def _forget(self, circuit: Circuit) -> None:
        """It is closed."""
        if self.open.pop(circuit, None) is not None:
            self._held = None
            self._changed_at[circuit] = time.monotonic()
            self._closing.pop(circuit, None)
            self.on_close(circuit)
        for times in (self._changed_at, self._closed_at, self._vanished, self._checked_at):
            if len(times) > MAX_CIRCUITS:
                times.clear()

    def due(self, serves: Callable[[Circuit], bool], most: int) -> Sequence[OpenBreaker]:
        """Those that may be probed by us now, and for which there is room. What comes of it is
        known after the next look; until then others go first."""
        ours = (one for one in self.open.values() if one.due and serves(one.circuit))
        due = list(islice(ours, most))
        for one in due:
            del self.open[one.circuit]
            self.open[one.circuit] = replace(one, due=False)
        return due

    def probed(self, opened: OpenBreaker, probe: Claim) -> None:
        """A probe of ours is under way. It began after the opening, whatever the clock says."""
        if (known := self.open.get(opened.circuit)) and known.opening == opened.opening:
            before = min(known.opened_at, probe.started_at - 0.001)
            self.open[opened.circuit] = replace(known, probes=opened.probes + 1, opened_at=before)


class ReportedOutages:
    """A remote worker's: it says what it saw, and its server decides."""

    def __init__(self) -> None:
        self.open: dict[Circuit, OpenBreaker] = {}
        self.streaks: dict[Circuit, FailureStreak] = {}
        self.openings: dict[Circuit, int] = {}

    def judge_end(self, claim: Claim, ended: AttemptEnd, breaker: Breaker | None) -> AttemptEnd:
        return ended

    def holds(self, claim: Claim) -> bool:
        return False

    def is_open(self, claim: Claim, kind: str = "") -> bool:
        return False

    def refunds(self, claim: Claim) -> bool:
        return True

    def trip(self, claim: Claim, breaker: Breaker, error: Error) -> None:
        return None


def _log_closed(circuit: Circuit, closed: Sequence[tuple[str, float]], reason: CloseReason) -> None:
    for task, seconds in closed:
        log.warning("breaker closed: queue %r, task %r: %s; it was open for %s",
                    circuit.queue, task, reason, format_duration(seconds))  # fmt: skip


def _circuit(claim: Claim) -> Circuit:
    return Circuit(claim.queue, claim.task)


def _by_queue(circuits: Iterable[Circuit]) -> HeldTasks:
    held: defaultdict[str, set[str]] = defaultdict(set)
    for queue, task in circuits:
        held[queue].add(task)
    return {queue: frozenset(tasks) for queue, tasks in held.items()}


def _same_kind(opened: OpenBreaker | None, ended: AttemptEnd) -> Outage | None:
    """A breaker that a plain error of a whole batch opened stays open while there is that error."""
    if opened is None or ended.outcome is not Outcome.FAILED:
        return None
    same = (ended.error or {}).get("type") == opened.kind
    return Outage.CERTAIN if same else None
