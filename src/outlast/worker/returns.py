"""Outcomes and events on their way back to the database.

A batch goes in together. What the database refuses because of a row is handed in one by one, so
that one that cannot be stored keeps no other waiting; what fails because of the database waits.

    batch ─▶ refused, or failed twice while the database was there ─▶ one by one ─┬▶ stored
                                            stored as a failure that says why ◀──┤
                      set aside, tried again alone with back-off, and told of ◀──┘
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from ..model.errors import ClaimLost, OutlastError, StoreError
from ..model.job import Claim, Hold
from ..model.lifecycle import Outcome, State
from ..model.outcome import Ended, Transition
from ..model.text import brief, describe
from ..model.words import count
from ..ops.claim import Wanted
from ..ops.finish import Finished, finish, finish_with_keys, turn
from ..ops.reclaim import Refusal
from ..store import Store
from ..store.wakes import Wakes
from .figures import Figures
from .held import Hands, Held, facts
from .loops import Backoff
from .row_faults import about_a_row, is_away, is_busy, unforeseen

log = logging.getLogger("outlast.worker")

T = TypeVar("T")
R = TypeVar("R")
Events = list[dict[str, Any]]
BRISK = 0.05  # seconds from the start of a handler until its outcome is on its way
SHOUT_EVERY = 0.05  # seconds at least between words to those who follow events
MOST_EVENTS = 10_000  # that may wait while the database is away; what is said beyond is dropped
MOST_REFUSED = 1_000  # outcomes that are remembered until they are on record
DOUBT = 2  # failures of a batch in a row after which it is taken apart, if the database is there
TELL_AFTER = 3.0  # seconds for which an outcome cannot be stored before others are told


class Returns:
    doubt: ClassVar[int] = DOUBT

    def __init__(
        self,
        store: Store,
        steady: Store,
        hands: Hands,
        figures: Figures,
        decide: Callable[[Claim, Ended], Transition],
        started: Callable[[set[str]], None],
    ) -> None:
        self._store = store
        self._steady = steady
        self._hands = hands
        self._figures = figures
        self._counts = figures.counts
        self._decide = decide
        self._started = started  # told of queues in which something became ready
        self.refused: deque[Refusal] = deque(maxlen=MOST_REFUSED)  # and not on record yet
        self._ended: list[Held] = []
        self.brisk = False  # what was handed in last had begun only a moment before
        self._failures = 0  # of batches in a row, while the database was there
        # Handed in one by one: they have follow-ups with keys, and may have to wait for others; or
        # they were refused, and no failure could be stored in their place either.
        self._keyed: list[Held] = []
        self._refused_since: dict[Hold, tuple[float, str]] = {}  # those, since when and why
        self._keyed_at = 0.0  # when to try these
        self._patience = Backoff(first=0.5)
        self._events: deque[dict[str, Any]] = deque()
        self._sending: Events = []  # on their way to the database
        self._wakes = Wakes(SHOUT_EVERY)
        self._numbers = itertools.count()  # of events: one that is sent again is known by its own

    def __len__(self) -> int:
        waiting = len(self._keyed) if time.monotonic() >= self._keyed_at else 0
        return len(self._ended) + len(self._events) + waiting

    def add(self, held: Held) -> None:
        keyed = held.transition is not None and has_keys(held.transition)
        (self._keyed if keyed else self._ended).append(held)

    def waiting(self) -> set[Held]:
        """Those that are handed in with the next round trip, or a later one."""
        return {*self._ended, *self._keyed}

    @property
    def slots(self) -> int:
        """How many slots the next round trip empties, before it claims."""
        return sum(not held.shares and self._hands.holds(held) for held in self._ended)

    def say(self, claim: Claim, kind: str, data: str, n: int | None = None) -> None:
        """From any thread: keep an event until the next turn hands it in. `n` is its number, where
        whoever said it counts for itself."""
        if len(self._events) >= MOST_EVENTS:
            self._counts["events_dropped"] += 1
            return
        event = {"job": claim.id, **claim.guard, "kind": kind, "data": data}
        self._events.append({**event, "n": next(self._numbers) if n is None else n})

    def said_by(self, claim: Claim) -> Events:
        """From any thread: what a claim said and may not be stored yet. An event is on its way
        before it no longer waits, so none is missed; one that is sent twice is kept once."""
        waiting = (*tuple(self._events), *self._sending)
        ours = {e["n"]: e for e in waiting if (e["job"], e["fence"], e["worker"]) == claim.hold}
        return [ours[n] for n in sorted(ours)]

    async def exchange(self, wanted: Wanted | None = None) -> tuple[list[Claim], float]:
        """Hand everything in, and take new jobs with the last round trip: those, and when we
        asked for them."""
        ended, self._ended = self._ended, []
        if ended:
            self.brisk = time.monotonic() - ended[0].began_at < BRISK
        try:
            plain = await self._hand_in(ended)
            await self._hand_in_keyed()
            asked_at = time.monotonic()
            if wanted is None and not plain:
                return [], asked_at
            return await self._claim(plain, wanted), asked_at
        except BaseException:
            # What was not taken back is still ours to give.
            left = [held for held in ended if self._hands.holds(held) and held not in self._keyed]
            self._ended = left + self._ended
            raise

    async def _hand_in(self, ended: list[Held]) -> list[Transition]:
        """Everything but plain successes, which travel with the next claim."""
        plain: list[Transition] = []
        other: list[Transition] = []
        for held in ended:
            if (transition := held.transition) is not None:
                (plain if transition.plain else other).append(transition)
        self._sending = events = []
        for _ in range(len(self._events)):
            events.append(self._events[0])
            self._events.popleft()
        if other or events:
            self._settle(await self._finish(other, events))
        return plain

    async def _hand_in_keyed(self) -> None:
        """One by one, and not for long: a key that somebody's open transaction holds is tried again
        later, and holds up nothing but its own job. So is whatever cannot be stored."""
        if not self._keyed or time.monotonic() < self._keyed_at:
            return
        for held in tuple(self._keyed):
            try:
                if held.transition is not None and self._hands.holds(held):
                    self._settle(await self._finish_alone(held.transition))
                self._keyed.remove(held)
                self._refused_since.pop(held.claim.hold, None)
                self._patience.succeeded()
            except Exception as error:
                if is_away(error):
                    raise
                self._keyed_at = time.monotonic() + self._patience.failed()
                if not is_busy(error):
                    self._note_refused(held, error)

    async def _claim(self, plain: list[Transition], wanted: Wanted | None) -> list[Claim]:
        try:
            finished, claims = await self._steady.arun(turn, plain, wanted)
        except Exception as error:
            if not plain or not self._takes_apart(error):
                raise
            finished, claims = await self._one_by_one(plain, []), []
        self._failures = 0
        self._settle(finished)
        return claims

    def _takes_apart(self, error: BaseException) -> bool:
        """Whether a batch that failed so is handed in one by one: at once if a row is to blame; the
        second time, whatever it is, unless nothing can be stored at present anyway."""
        if is_away(error):
            return False
        self._failures += 1
        return about_a_row(error) or self._failures >= self.doubt

    async def _finish(self, transitions: list[Transition], events: Events) -> Finished:
        try:
            done = await self._store.arun(finish, transitions, events, self._channel(events))
        except BaseException as error:
            if not self._takes_apart(error):
                self._events.extendleft(reversed(events))
                raise
            done = await self._one_by_one(transitions, events)
        self._failures = 0
        return done

    def _channel(self, events: Events) -> str:
        """Where to say that there are events; nowhere, if that was said just now."""
        due = events and self._store.wakes and self._wakes.due([""])
        return self._store.events_channel if due else ""

    async def _one_by_one(self, transitions: list[Transition], events: Events) -> Finished:
        while events:
            try:
                await self._record(events[0])
            except BaseException:
                self._events.extendleft(reversed(events))
                raise
            del events[0]
        together = Finished()
        for transition in transitions:
            try:
                together.add(await self._finish_alone(transition))
            except Exception as error:
                if is_away(error):
                    raise
                self._set_aside(transition.claim, error)
        return together

    async def _record(self, event: dict[str, Any]) -> None:
        try:
            await self._insist(self._record_one, event)
        except Exception as error:
            if is_away(error) or is_busy(error):
                raise
            self._drop(event, error)

    async def _record_one(self, event: dict[str, Any]) -> None:
        await self._store.arun(finish, [], [event])

    def _drop(self, event: dict[str, Any], error: Exception) -> None:
        self._counts["events_dropped"] += 1
        log.warning("job %s: an event cannot be stored: %s", event["job"], error)

    async def _finish_alone(self, transition: Transition) -> Finished:
        """An outcome that cannot be stored becomes a failure that says so; if that cannot be stored
        either, one in plain words."""
        refusal: Exception | None = None
        for replacement in (None, self._as_failure, in_plain_words):
            if replacement is not None and refusal is not None:
                transition = replacement(transition.claim, refusal)
            try:
                return await self._insist(self._finish_one, transition)
            except ClaimLost:
                return Finished(lost=[transition])
            except Exception as error:
                if is_away(error) or is_busy(error):
                    raise
                refusal = refusal or error
        assert refusal is not None
        if not about_a_row(refusal):
            raise refusal  # nothing at all can be stored: perhaps later
        # Not even the failure: its lease runs out, and whoever sweeps tells of it.
        log.error("job %s cannot be finished: %s", transition.claim.id, refusal,
                  extra=facts(transition.claim))  # fmt: skip
        return Finished(lost=[transition])

    async def _finish_one(self, transition: Transition) -> Finished:
        if has_keys(transition):
            return await self._store.arun(finish_with_keys, transition)
        return await self._store.arun(finish, [transition])

    async def _insist(self, store: Callable[[T], Awaitable[R]], what: T) -> R:
        """Once more after an error that nobody foresaw: it may have been about something else."""
        try:
            return await store(what)
        except Exception as error:
            if not unforeseen(error):
                raise
        return await store(what)

    def _as_failure(self, claim: Claim, error: Exception) -> Transition:
        self._counts["unstorable"] += 1
        log.error("job %s: its outcome cannot be stored: %s", claim.id, brief(error),
                  extra=facts(claim))  # fmt: skip
        # What the database or its driver has against a value, it has against it next time, too.
        ours = isinstance(error, OutlastError) and not isinstance(error, StoreError)
        outcome = Outcome.FAILED if ours else Outcome.PERMANENT
        return self._decide(claim, Ended(outcome, error=describe(error)))

    def _set_aside(self, claim: Claim, error: Exception) -> None:
        """It is tried again alone, later, and holds up no other."""
        held = self._hands.get(claim.id, claim.fence)
        if held is not None and held not in self._keyed:
            self._keyed.append(held)
            self._keyed_at = time.monotonic() + self._patience.failed()
            self._note_refused(held, error)

    def _note_refused(self, held: Held, error: Exception) -> None:
        if held.claim.hold not in self._refused_since:
            self._refused_since[held.claim.hold] = time.monotonic(), brief(error)
            log.error("job %s: its outcome is refused, and set aside: %s", held.claim.id,
                      brief(error), extra=facts(held.claim))  # fmt: skip

    @property
    def held_up(self) -> int:
        """How many outcomes are set aside because they cannot be stored."""
        return len(self._refused_since)

    def trouble(self) -> str | None:
        """From any thread: why outcomes cannot be handed in, if that lasts."""
        refused = tuple(self._refused_since.values())
        since, why = min(refused, default=(time.monotonic(), ""))
        if time.monotonic() - since < TELL_AFTER:
            return None
        return f"{count(len(refused), 'outcome')} cannot be stored: {why}"[:500]

    def _settle(self, finished: Finished) -> None:
        if finished.queues:
            self._started(finished.queues)
        others = 0
        for transition, state in finished.accepted:
            self._hands.put_down(transition.claim)
            if self._refused_since:
                self._refused_since.pop(transition.claim.hold, None)
            if state is not State.SUCCEEDED:
                others += 1
                self._counts[state] += 1
                self._figures.accepted(transition, state)
        self._counts[State.SUCCEEDED] += len(finished.accepted) - others
        for transition in finished.lost:
            self._hands.put_down(transition.claim)
            self._refused_since.pop(transition.claim.hold, None)
            self._counts["refused"] += 1
            self.refused.append(Refusal(*transition.claim.hold, str(transition.outcome)))
            log.warning(
                "job %s: attempt %d lost its claim; its outcome (%s) was refused",
                transition.claim.id, transition.claim.attempt, transition.outcome,
                extra=facts(transition.claim),
            )  # fmt: skip


def in_plain_words(claim: Claim, error: Exception) -> Transition:
    """A failure that any database can store: dead, and in ASCII."""
    told = ascii(brief(error))[1:-1][:500]
    reason = {"type": "Unstorable", "message": f"its outcome cannot be stored: {told}"}
    return Transition(claim, Outcome.PERMANENT, State.DEAD, error=reason, failures=1)


def has_keys(transition: Transition) -> bool:
    return bool(transition.jobs) and any(
        job.key is not None or any(flow.key is not None for flow in job.founds)
        for job in transition.jobs
    )
