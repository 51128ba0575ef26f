"""Finisher: stores outcomes and events in the database.

Outcomes are stored in batches. A batch refused because of a row is stored one by one, so that an
outcome that cannot be stored delays no other; a batch that fails because of the database waits.

    batch ─▶ refused, or failed twice with the database available ─▶ one by one ─┬▶ stored
                                         stored as a failure with the reason ◀──┤
                      set aside, retried alone with back-off, and reported ◀────┘
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from ..loops import Backoff
from ..model.claim import Claim, ClaimEvent, ClaimKey
from ..model.humanize import pluralize
from ..model.outcome import AttemptEnd, Transition
from ..model.safe_text import error_summary
from ..model.stream import STREAM
from ..ops.claim import ClaimRequest
from ..ops.finish import Finished, finish
from ..store import Store
from ..store.notify_limiter import NotifyLimiter
from .in_flight import InFlight, InFlightJobs, log_fields
from .row_errors import is_away, is_busy, is_row_error
from .single_finisher import SingleFinisher, has_keys
from .stream_writer import StreamWriter

log = logging.getLogger("outlast.worker")

T = TypeVar("T")
R = TypeVar("R")
Events = list[ClaimEvent]
SHORT_HANDLER_S = 0.05  # seconds from the start of a short handler until its outcome is reported
MIN_PACE_S = 0.0005  # minimum duration in seconds, for clocks with a low resolution
NOTIFY_INTERVAL_S = 0.05  # minimum seconds between notifications of event subscribers
MAX_PENDING_EVENTS = 10_000  # while the database is unavailable; further events are dropped
SPLIT_AFTER_FAILURES = 2  # in a row, with the database available: then the batch is split
REPORT_AFTER_S = 3.0  # seconds until an outcome that cannot be stored is reported as trouble


FinishAndClaim = Callable[
    [list[Transition], ClaimRequest | None], Awaitable[tuple[Finished, list[Claim]]]
]


class Finisher:
    """Stores outcomes and events. `apply` receives accepted and refused outcomes,
    `finish_and_claim` stores plain successes and claims jobs in one round trip, `on_drop` is called
    with each event that cannot be stored."""

    def __init__(
        self,
        store: Store,
        in_flight: InFlightJobs,
        counts: Counter[str],
        apply: Callable[[Finished], None],
        decide: Callable[[Claim, AttemptEnd], Transition],
        finish_and_claim: FinishAndClaim,
    ) -> None:
        self.split_after = SPLIT_AFTER_FAILURES
        self.on_drop: Callable[[ClaimEvent, Exception], None] = lambda event, error: None
        self._store = store
        self._in_flight = in_flight
        self._apply = apply
        self._counts = counts
        self._single = SingleFinisher(store, counts, decide, self._drop)
        self._finish_and_claim = finish_and_claim
        self._ended: list[InFlight] = []
        self._only_successes = True  # whether all of `_ended` are plain successes
        self._reporting: list[list[InFlight]] = []  # being sent
        self.handlers_are_short = False  # by the time from start to report of the last outcomes
        self.pace = 0.0  # jobs per second, by the same outcomes
        self._failures = 0  # of batches in a row, with the database available
        # Stored one by one: outcomes with keyed follow-up jobs, which may wait for locks, and
        # refused outcomes that could not be replaced by a failure.
        self._keyed: list[InFlight] = []
        self._refused_since: dict[ClaimKey, tuple[float, str]] = {}  # refused, with time and reason
        self._keyed_at = 0.0  # next try of `_keyed`
        self._keyed_backoff = Backoff(first=0.5)
        self._events: deque[ClaimEvent] = deque()
        self._sending: Events = []  # being sent to the database
        self._notify_at = NotifyLimiter(NOTIFY_INTERVAL_S)
        self._numbers = itertools.count()  # of events: they identify an event that is sent again
        self._streams: StreamWriter | None = None  # created when a handler streams
        self._stream_lock = threading.Lock()

    def __len__(self) -> int:
        waiting = len(self._keyed) if time.monotonic() >= self._keyed_at else 0
        streamed = 0 if self._streams is None else len(self._streams)
        return len(self._ended) + len(self._events) + streamed + waiting

    def due_in(self) -> float:
        """Seconds until streamed output is to be stored; infinite if none waits."""
        return math.inf if self._streams is None else self._streams.due_in()

    def add(self, job: InFlight) -> None:
        if self._streams is not None:
            self._streams.end(job.claim)
        transition = job.transition
        if transition is not None and transition.jobs and has_keys(transition):
            self._keyed.append(job)
            return
        self._ended.append(job)
        self._in_flight.free_slot(job)
        if transition is None or not transition.is_simple_success:
            self._only_successes = False

    def waiting(self) -> set[InFlight]:
        """Jobs whose outcomes wait for a round trip."""
        return {*self._ended, *self._keyed}

    def reported(self) -> set[InFlight]:
        """Jobs whose outcomes wait or are being sent."""
        return self.waiting().union(*self._reporting)

    @property
    def only_successes(self) -> bool:
        """Whether only first-try successes without follow-up jobs wait: these may be reported while
        others are being sent. Events of a job must be stored before its outcome."""
        others = self._events or self._sending or self._keyed or self._streams is not None
        return self._only_successes and not others

    def add_event(self, claim: Claim, kind: str, data: str, n: int | None = None) -> bool:
        """From any thread: keep an event until the next cycle stores it. `n` is its number if
        another process has numbered it. Returns whether to wake the worker."""
        if kind == STREAM:
            return self._stream_writer().add(claim, data, n)
        if len(self._events) >= MAX_PENDING_EVENTS:
            self._counts["events_dropped"] += 1
            return False
        number = next(self._numbers) if n is None else n
        self._events.append(claim.event_row(kind, data, number))
        return True

    def _stream_writer(self) -> StreamWriter:
        with self._stream_lock:
            if self._streams is None:
                number = partial(next, self._numbers)
                self._streams = StreamWriter(
                    self._store, self._in_flight.has, number, self._channel, self._drop
                )
            return self._streams

    def pending_events(self, claim: Claim) -> Events:
        """From any thread: events of a claim that may not be stored yet. An event is added to
        `_sending` before it leaves `_events`, so none is missed; duplicates are removed."""
        waiting = (*tuple(self._events), *self._sending)
        ours = {
            e["n"]: e for e in waiting if (e["job"], e["fence"], e["worker"]) == claim.claim_key
        }
        streamed = [] if self._streams is None else self._streams.pending(claim)
        return [ours[n] for n in sorted(ours)] + streamed

    async def flush(self) -> None:
        """Report everything, and claim nothing."""
        await self.flush_and_claim()

    async def flush_and_claim(
        self, request: ClaimRequest | None = None
    ) -> tuple[list[Claim], float]:
        """Report everything, and claim jobs with the last round trip; returns the claims and the
        time of the request."""
        with self._taken() as ended:
            plain = await self._flush(ended)
            await self._flush_keyed()
            asked_at = time.monotonic()
            if request is None and not plain:
                return [], asked_at
            return await self._claim(plain, request), asked_at

    async def report_and_claim(self, request: ClaimRequest) -> tuple[list[Claim], float]:
        """Claim while another round trip is pending, which may report anything: this one reports
        plain successes if nothing else waits, and otherwise nothing."""
        if not self.only_successes:
            asked_at = time.monotonic()
            return await self._claim([], request), asked_at
        with self._taken() as ended:
            plain = [job.transition for job in ended if job.transition is not None]
            asked_at = time.monotonic()
            return await self._claim(plain, request), asked_at

    @contextmanager
    def _taken(self) -> Iterator[list[InFlight]]:
        """Take all waiting outcomes; after a failure, return those that were not stored."""
        ended, self._ended, self._only_successes = self._ended, [], True
        self._reporting.append(ended)
        if ended:
            took = time.monotonic() - ended[0].began_at
            self.handlers_are_short = took < SHORT_HANDLER_S
            self.pace = len(ended) / max(took, MIN_PACE_S)
        try:
            yield ended
        except BaseException:
            left = [job for job in ended if self._in_flight.holds(job) and job not in self._keyed]
            self._ended, self._only_successes = left + self._ended, False
            raise
        finally:
            self._reporting = [sent for sent in self._reporting if sent is not ended]

    async def _flush(self, ended: list[InFlight]) -> list[Transition]:
        """Report everything except plain successes, which are sent with the next claim."""
        if self._streams is not None:
            await self._streams.flush()
        plain: list[Transition] = []
        other: list[Transition] = []
        for job in ended:
            if (transition := job.transition) is not None:
                (plain if transition.is_simple_success else other).append(transition)
        self._sending = events = []
        for _ in range(len(self._events)):
            events.append(self._events[0])
            self._events.popleft()
        if other or events:
            try:
                self._apply_finished(await self._finish(other, events))
            finally:  # stored, or to be sent again
                self._sending = []
        return plain

    async def _flush_keyed(self) -> None:
        """Report outcomes with keys, and those set aside, one by one with a short timeout: a key
        locked by another open transaction delays only its own job, which is retried later."""
        if not self._keyed or time.monotonic() < self._keyed_at:
            return
        for job in tuple(self._keyed):
            try:
                if job.transition is not None and self._in_flight.holds(job):
                    self._apply_finished(await self._single.finish(job.transition))
                self._keyed.remove(job)
                self._refused_since.pop(job.claim.claim_key, None)
                self._keyed_backoff.succeeded()
            except Exception as error:
                if is_away(error):
                    raise
                self._keyed_at = time.monotonic() + self._keyed_backoff.failed()
                if not is_busy(error):
                    self._note_refused(job, error)

    async def _claim(self, plain: list[Transition], request: ClaimRequest | None) -> list[Claim]:
        try:
            finished, claims = await self._finish_and_claim(plain, request)
        except Exception as error:
            if not plain or not self._should_split(error):
                raise
            finished, claims = await self._one_by_one(plain, []), []
        self._failures = 0
        self._apply_finished(finished)
        return claims

    def _should_split(self, error: BaseException) -> bool:
        """Whether to store a failed batch one by one: at once if a row is at fault, and after a
        second error of any kind unless the database is unavailable."""
        if is_away(error):
            return False
        self._failures += 1
        return is_row_error(error) or self._failures >= self.split_after

    async def _finish(self, transitions: list[Transition], events: Events) -> Finished:
        try:
            done = await self._store.arun(finish, transitions, events, self._channel(events))
        except BaseException as error:
            if not self._should_split(error):
                self._events.extendleft(reversed(events))
                raise
            done = await self._one_by_one(transitions, events)
        self._failures = 0
        return done

    def _channel(self, events: Events) -> str:
        """The channel to notify of events; empty if a notification was sent just before."""
        due = events and self._store.can_notify and self._notify_at.due([""])
        return self._store.events_channel if due else ""

    async def _one_by_one(self, transitions: list[Transition], events: Events) -> Finished:
        while events:
            try:
                await self._single.record(events[0])
            except BaseException:
                self._events.extendleft(reversed(events))
                raise
            del events[0]
        together = Finished()
        for transition in transitions:
            try:
                together.add(await self._single.finish(transition))
            except Exception as error:
                if is_away(error):
                    raise
                self._set_aside(transition.claim, error)
        return together

    def _drop(self, event: ClaimEvent, error: Exception) -> None:
        self._counts["events_dropped"] += 1
        log.warning("job %s: an event cannot be stored: %s", event["job"], error)
        self.on_drop(event, error)

    def _set_aside(self, claim: Claim, error: Exception) -> None:
        """Retry this outcome alone, later, without delaying others."""
        job = self._in_flight.get(claim.id, claim.fence)
        if job is not None and job not in self._keyed:
            self._keyed.append(job)
            self._in_flight.take_slot(job)
            self._keyed_at = time.monotonic() + self._keyed_backoff.failed()
            self._note_refused(job, error)

    def _note_refused(self, job: InFlight, error: Exception) -> None:
        if job.claim.claim_key not in self._refused_since:
            self._refused_since[job.claim.claim_key] = time.monotonic(), error_summary(error)
            log.error("job %s: its outcome is refused, and set aside: %s", job.claim.id,
                      error_summary(error), extra=log_fields(job.claim))  # fmt: skip

    @property
    def set_aside_count(self) -> int:
        """The number of outcomes set aside because they cannot be stored."""
        return len(self._refused_since)

    def trouble(self) -> str | None:
        """From any thread: why outcomes cannot be reported, if that persists."""
        refused = tuple(self._refused_since.values())
        since, why = min(refused, default=(time.monotonic(), ""))
        if time.monotonic() - since < REPORT_AFTER_S:
            return None
        return f"{pluralize(len(refused), 'outcome')} cannot be stored: {why}"[:500]

    def _apply_finished(self, finished: Finished) -> None:
        self._apply(finished)
        if self._refused_since:
            for transition in (*(done for done, _ in finished.accepted), *finished.lost):
                self._refused_since.pop(transition.claim.claim_key, None)
