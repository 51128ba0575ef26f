"""Circuit breakers as one worker knows them: it counts failures, opens, probes and closes.

    handler ends ─▶ ended() ─┬─ a failure in a row too many: open, here at once, then for all
                             ├─ a failure while it is open: the job is released, unspent
                             └─ a success of an attempt begun since: close
    poll ─▶ update() ─── a probe is due and no job is there for it: retire(): close

Each poll reads the breakers of the database as well, so claims cost nothing more. A failed write is
repeated later and delays no outcome and no claim.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from ..model.breaker import (
    RELAPSE_S,
    Breaker,
    Circuit,
    FailureStreak,
    OpenBreaker,
    Outage,
)
from ..model.claim import Claim
from ..model.ids import new_job_id
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd, Error
from ..store import Store
from .breaker_writes import BreakerWrites

MAX_CIRCUITS = 10_000  # with counted failures
UNPROBED_AFTER_S = 60.0  # seconds a probe stays due before it counts as impossible
ANSWERED_OUTCOMES = (
    Outcome.FAILED,
    Outcome.PERMANENT,
    Outcome.UNDECODABLE,
)  # of another kind: no outage


HeldTasks = Mapping[str, frozenset[str]]


class Breakers:
    """The circuit breakers that this worker knows; `worker` returns its registered id."""

    def __init__(self, worker: Callable[[], str]) -> None:
        self.on_open: Callable[[Circuit], None] = lambda circuit: None
        self.on_close: Callable[[Circuit], None] = lambda circuit: None
        self.open: dict[Circuit, OpenBreaker] = {}
        self._held: HeldTasks | None = {}  # of open breakers; None: to be computed again
        self.streaks: dict[Circuit, FailureStreak] = {}
        self._writes = BreakerWrites(worker, self)
        self._changed_at: dict[Circuit, float] = {}  # monotonic: when it was opened or closed
        self._closed_at: dict[Circuit, float] = {}  # monotonic: when a probe closed it
        self._due_since: dict[Circuit, float] = {}  # monotonic

    # Tasks held back

    @property
    def held(self) -> HeldTasks:
        """Tasks not to claim, by queue."""
        if self._held is None:
            self._held = _by_queue(self.open)
        return self._held

    @property
    def held_while_probed(self) -> HeldTasks:
        """The same for workers that may not probe: without the tasks that no worker probes."""
        long_ago = time.monotonic() - UNPROBED_AFTER_S
        due_since = self._due_since
        return _by_queue(c for c in self.open if due_since.get(c, math.inf) > long_ago)

    def holds(self, claim: Claim) -> bool:
        """Whether a job in flight should be released instead of started."""
        if not self.open:
            return False
        opened = self.open.get(_circuit(claim))
        return opened is not None and not opened.precedes(claim.started_at)

    def is_open(self, claim: Claim, kind: str = "") -> bool:
        """Whether the breaker is open; with `kind`, whether this kind of error opened it."""
        opened = self.open.get(_circuit(claim))
        return opened is not None and (not kind or opened.kind == kind)

    def refunds(self, claim: Claim) -> bool:
        """Whether an inferred outage costs its jobs nothing. Not right after a successful probe:
        then some of the jobs may be at fault and must end in time. A manual close proves nothing
        about the dependency."""
        closed_at = self._closed_at.get(_circuit(claim))
        return closed_at is None or time.monotonic() - closed_at > RELAPSE_S

    # Ends of attempts

    def judge_end(self, claim: Claim, ended: AttemptEnd, breaker: Breaker | None) -> AttemptEnd:
        """Apply an attempt's end to the circuit, and the circuit to the end."""
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
            return ended  # a single attempt is allowed: it may have had effects
        return self._held_back(opened, claim, ended, breaker)

    def _is_outage(
        self, claim: Claim, ended: AttemptEnd, outage: Outage, breaker: Breaker
    ) -> tuple[OpenBreaker | None, bool]:
        """The breaker, if this failure opens it; and whether the failure counts as an attempt."""
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
        """Open the breaker: here at once, in the database with the next write."""
        circuit = _circuit(claim)
        if circuit in self.open:
            return self.open[circuit]
        opened = OpenBreaker(circuit, new_job_id(), error.get("type") or "Outage")
        self.open[circuit] = opened
        self._held = None
        wait = breaker.wait(0, random.random())
        self._writes.add_opening(opened, error.get("message") or "", wait)
        self.streaks.pop(circuit, None)
        self._changed_at[circuit] = time.monotonic()
        self.on_open(circuit)
        return opened

    def _held_back(
        self, opened: OpenBreaker, claim: Claim, ended: AttemptEnd, breaker: Breaker
    ) -> AttemptEnd:
        """Release the job, unspent and ready. An attempt that began after the opening counts as a
        probe: its job goes behind the others, so that the next probe is another job."""
        error = {**(ended.error or {}), "traceback": ""}
        behind = None
        if opened.precedes(claim.started_at):
            behind, wait = 0.0, breaker.wait(opened.probes + 1, random.random())
            self._writes.add_failed_probe(opened, claim.claim_key, error.get("message", ""), wait)
        return AttemptEnd(Outcome.RELEASED, delay=behind, error=error, quiet=True)

    def _succeeded(self, claim: Claim) -> None:
        circuit = _circuit(claim)
        self.streaks.pop(circuit, None)
        opened = self.open.get(circuit)
        if opened is not None and opened.precedes(claim.started_at):
            self._writes.closing[circuit] = opened

    # The database

    @property
    def openings(self) -> Mapping[Circuit, int]:
        """The number of times that this process opened each breaker."""
        return self._writes.openings

    @property
    def pending(self) -> bool:
        """Whether there is something to write now."""
        return self._writes.pending

    async def write(self, store: Store) -> bool:
        """Write pending changes; returns whether to notify other workers."""
        return await self._writes.write(store)

    async def retire(self, store: Store) -> None:
        """Close breakers whose due probe cannot be made because no job is left. Any worker does it,
        also one that does not know the task."""
        await self._writes.retire(store, self._due_since)

    def update(self, breakers: Iterable[OpenBreaker], asked_at: float) -> None:
        """Apply the breakers that a poll read, unless newer facts are known here."""
        found = {one.circuit: one for one in breakers}
        since = self._due_since
        self._due_since = {c: since.get(c, asked_at) for c, one in found.items() if one.due}
        if not found and not self.open:
            return
        for circuit in {*found, *self.open}:
            if circuit in self._writes.opening or self._changed_at.get(circuit, 0.0) >= asked_at:
                continue
            if circuit in found:
                new = circuit not in self.open
                self.open[circuit] = found[circuit]
                if new:
                    self._held = None
                    self.streaks.pop(circuit, None)
                    self.on_open(circuit)
            else:
                self.forget(circuit)
                self._writes.add_vanished(circuit)

    def written(self, opened: OpenBreaker) -> None:
        """The breaker is in the database, opened by this worker or by another."""
        self.open[opened.circuit] = opened
        self._changed_at[opened.circuit] = time.monotonic()

    def closed_by_probe(self, circuit: Circuit, at: float) -> None:
        self._closed_at[circuit] = at

    def forget(self, circuit: Circuit) -> None:
        """The breaker is closed."""
        if self.open.pop(circuit, None) is not None:
            self._held = None
            self._changed_at[circuit] = time.monotonic()
            self._writes.closing.pop(circuit, None)
            self.on_close(circuit)
        for times in (self._changed_at, self._closed_at):
            if len(times) > MAX_CIRCUITS:
                times.clear()

    def due(self, serves: Callable[[Circuit], bool], most: int) -> Sequence[OpenBreaker]:
        """Breakers that this worker may probe now, up to `most`. Until the next poll shows the
        result, other breakers go first."""
        ours = (one for one in self.open.values() if one.due and serves(one.circuit))
        due = list(islice(ours, most))
        for one in due:
            del self.open[one.circuit]
            self.open[one.circuit] = replace(one, due=False)
        return due

    def probed(self, opened: OpenBreaker, probe: Claim) -> None:
        """A probe of this worker has started: after the opening, whatever the clock says."""
        if (known := self.open.get(opened.circuit)) and known.opening == opened.opening:
            before = min(known.opened_at, probe.started_at - 0.001)
            self.open[opened.circuit] = replace(known, probes=opened.probes + 1, opened_at=before)


def _circuit(claim: Claim) -> Circuit:
    return Circuit(claim.queue, claim.task)


def _by_queue(circuits: Iterable[Circuit]) -> HeldTasks:
    held: defaultdict[str, set[str]] = defaultdict(set)
    for queue, task in circuits:
        held[queue].add(task)
    return {queue: frozenset(tasks) for queue, tasks in held.items()}


def _same_kind(opened: OpenBreaker | None, ended: AttemptEnd) -> Outage | None:
    """A breaker opened by a plain error of a whole batch stays open while that error recurs."""
    if opened is None or ended.outcome is not Outcome.FAILED:
        return None
    same = (ended.error or {}).get("type") == opened.kind
    return Outage.CERTAIN if same else None
