"""Reporter: sends outcomes, acceptances and events to the server, all pending ones together.

Events of a job are sent before its outcome, so an accepted outcome implies that the server has the
events. A call that the server refuses because of one report is halved until the faulty report is
found, which becomes a failure with that reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..loops import Backoff
from ..model.claim import Claim, ClaimKey
from ..model.errors import InvalidOption, ServerUnavailable
from ..model.lifecycle import Outcome, State
from ..model.outcome import AttemptEnd, Transition, release
from ..model.safe_text import error_record
from ..model.task import Registry
from ..ops.finish import Finished
from ..protocol import (
    REPORTS_PATH,
    AnswerFields,
    encode_call,
    encode_outcome,
    encode_renewal,
    split_calls,
)
from ..worker.finished_jobs import FinishedJobs
from ..worker.finisher import SHORT_HANDLER_S, Events
from ..worker.in_flight import InFlight, log_fields
from ..worker.outcome_policy import OutcomePolicy
from ..worker.shared import WorkerShared
from .event_sender import EventSender
from .http_client import PayloadRejected
from .session import RemoteSession

log = logging.getLogger("outlast.worker")


class ReceivedOffer(NamedTuple):
    """An offered job, and the monotonic time of its arrival."""

    claim: Claim
    at: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Callbacks that decide on offers and start accepted jobs."""

    room: Callable[[], int]  # the number of jobs to accept
    prefetch: Callable[[], int]  # the number of offers to request beyond the slots
    start: Callable[[Sequence[Claim], float], None]  # with accepted claims and the request's time
    renew_now: Callable[[], None]


class Reporter:
    def __init__(
        self,
        session: RemoteSession,
        shared: WorkerShared,
        registry: Registry,
        acceptance: Acceptance,
        stream_limit: int,
    ) -> None:
        self._session = session
        self._state = shared.state
        self._in_flight = shared.in_flight
        self._counts = shared.metrics.counts
        self._wakeup = shared.wakeup
        self._registry = registry
        self._decide = OutcomePolicy(registry).decide
        self._acceptance = acceptance
        self._finished = FinishedJobs(shared.in_flight, shared.metrics)
        self.handlers_are_short = False
        self._ended: list[InFlight] = []
        self._waiting: list[InFlight] = []  # outcomes that the server could not store for now
        self._again_at = 0.0  # when to send these
        self._offers: deque[ReceivedOffer] = deque()
        self._longest_run = 0.0  # seconds, of handlers that ended since the last report
        self._events = EventSender(session, shared, self.send, acceptance.renew_now, stream_limit)
        self._busy_backoff = Backoff(first=0.05, cap=5.0)  # of outcomes in `_waiting`

    def __len__(self) -> int:
        """The number of items to send now, without offers for which there is no room."""
        accepting = min(len(self._offers), self._acceptance.room()) if self._offers else 0
        waiting = len(self._waiting) if time.monotonic() >= self._again_at else 0
        return len(self._ended) + accepting + len(self._events) + waiting

    def due_in(self) -> float:
        return self._events.due_in()

    @property
    def set_aside_count(self) -> int:
        """Always 0: the server stores outcomes, or refuses them at once."""
        return 0

    def reported(self) -> set[InFlight]:
        return {*self._ended, *self._waiting}

    def add(self, job: InFlight) -> None:
        self._events.end(job.claim)
        if job.began_at:
            self._longest_run = max(self._longest_run, time.monotonic() - job.began_at)
        self._ended.append(job)
        self._in_flight.free_slot(job)

    @property
    def offered(self) -> bool:
        return bool(self._offers)

    def offer(self, claims: Sequence[Claim]) -> None:
        now = time.monotonic()
        self._offers.extend([ReceivedOffer(claim, now) for claim in claims])

    def release_unaccepted(self, after: float) -> None:
        """Release offers that have waited for room for too long: other workers may have some."""
        before = time.monotonic() - after
        if self._offers and self._offers[0].at <= before:
            room = self._acceptance.room()
            while len(self._offers) > room and self._offers[-1].at <= before:
                self.release(self._offers.pop().claim)

    def decline(self) -> None:
        """Accept no more offers."""
        while self._offers:
            self.release(self._offers.pop().claim)

    def release(self, claim: Claim) -> None:
        """Release a job that has not started, unspent."""
        job = InFlight(claim, safe_until=0.0, transition=release(claim))
        self._in_flight.add(job)
        self._ended.append(job)

    def add_event(self, claim: Claim, kind: str, data: str, n: int | None = None) -> bool:
        return self._events.add(claim, kind, data, n)

    def pending_events(self, claim: Claim) -> Events:
        return []

    async def flush(self) -> None:
        """Send everything, and start accepted jobs."""
        await self._events.flush()
        asked_at = time.monotonic()
        self._resume_delayed()
        items = [self._encode(job) for job in self._ended]
        accepting = self._next_offers()
        ended, self._ended = self._ended, []
        if ended:
            self.handlers_are_short, self._longest_run = (
                self._longest_run < SHORT_HANDLER_S,
                0.0,
            )
        items += [encode_renewal(self._session.token(offer.claim)) for offer in accepting]
        try:
            answers = await self.send(items, self._acceptance.prefetch())
        except BaseException:
            self._ended = [job for job in ended if self._in_flight.holds(job)] + self._ended
            self._offers.extendleft(reversed(accepting))
            raise
        self._apply_answers(ended, answers[: len(ended)])
        self._start_accepted(accepting, answers[len(ended) :], asked_at)

    def _resume_delayed(self) -> None:
        """Send outcomes again that the server could not store, when they are due."""
        if self._waiting and time.monotonic() >= self._again_at:
            self._ended += [job for job in self._waiting if self._in_flight.holds(job)]
            self._waiting = []

    def _delay(self, job: InFlight) -> None:
        """Send an outcome again later that the server cannot store for now."""
        self._waiting.append(job)
        if len(self._waiting) == 1:
            wait = self._busy_backoff.failed()
            self._again_at = time.monotonic() + wait
            asyncio.get_running_loop().call_later(wait, self._wakeup.set)

    def _encode(self, job: InFlight) -> str:
        """An outcome in wire format. If it cannot be encoded, it becomes a failure with that
        reason."""
        assert job.transition is not None
        try:
            return self.encode_outcome(job.transition)
        except Exception as error:
            self._counts["unstorable"] += 1
            ended = AttemptEnd(Outcome.PERMANENT, error=error_record(error))
            job.transition = self._decide(job.claim, ended)
            return self.encode_outcome(job.transition)

    def _next_offers(self) -> list[ReceivedOffer]:
        if not self._offers:
            return []
        number = min(len(self._offers), self._acceptance.room())
        return [self._offers.popleft() for _ in range(number)]

    async def send_output(self, claim: Claim) -> None:
        await self._events.send_output(claim)

    async def send(self, items: Sequence[str], ahead: int = 0) -> list[AnswerFields]:
        answers: list[AnswerFields] = []
        for part in split_calls(items):
            answers += await self._send_part(part, ahead)
        return answers

    async def _send_part(self, part: Sequence[str], ahead: int) -> list[AnswerFields]:
        try:
            answer = await self._session.client.post(REPORTS_PATH, encode_call(part, ahead))
        except PayloadRejected as error:
            if len(part) == 1:
                return [{"status": "refused", "cancel": False, "reason": str(error)}]
            half = len(part) // 2
            first = await self._send_part(part[:half], ahead)
            return first + await self._send_part(part[half:], ahead)
        given: list[AnswerFields] = answer["reports"]
        if len(given) != len(part):
            raise ServerUnavailable(reason="its response has fewer reports than the request")
        return given

    # Requests

    def encode_outcome(self, transition: Transition) -> str:
        definition = self._registry.get(transition.claim.task)
        policy = definition.retry if definition else None
        breaker = definition.breaker if definition else None
        if not self._session.takes_traces:
            transition = transition._replace(trace=None)
        return encode_outcome(self._session.token(transition.claim), transition, policy, breaker)

    # Responses

    def _apply_answers(self, ended: Sequence[InFlight], answers: Sequence[AnswerFields]) -> None:
        finished = Finished()
        for job, answer in zip(ended, answers, strict=True):
            assert job.transition is not None
            match answer["status"]:
                case "ok" | "duplicate":
                    finished.accepted.append((job.transition, job.transition.to))
                    self._busy_backoff.succeeded()
                case "busy":
                    self._delay(job)
                case "refused" if job.transition.outcome is Outcome.SUCCEEDED:
                    self._fail(job, answer["reason"])
                case _:
                    finished.lost.append(job.transition)
        self._finished.apply(finished)
        for transition in (*(done for done, _ in finished.accepted), *finished.lost):
            self.forget(transition.claim.claim_key)

    def _fail(self, job: InFlight, reason: str | None) -> None:
        """A success that the server refuses becomes a failure with that reason."""
        log.error("job %s: its outcome was refused: %s", job.claim.id, reason,
                  extra=log_fields(job.claim))  # fmt: skip
        error = error_record(InvalidOption(option="result", reason=f"was refused: {reason}"))
        job.transition = self._decide(job.claim, AttemptEnd(Outcome.PERMANENT, error=error))
        self._ended.append(job)

    def _start_accepted(
        self, offers: Sequence[ReceivedOffer], answers: Sequence[AnswerFields], asked_at: float
    ) -> None:
        starting = []
        for offer, answer in zip(offers, answers, strict=True):
            claim = offer.claim
            if answer["status"] == "busy":
                self._offers.append(offer)
            elif answer["status"] != "ok":
                self._counts["late"] += 1
                self.forget(claim.claim_key)
            elif answer["cancel"]:
                self._cancelled(claim)
            elif self._state.stopping:
                self.release(claim)
            else:
                starting.append(claim)
        self._acceptance.start(starting, asked_at)

    def _cancelled(self, claim: Claim) -> None:
        """The job was cancelled before it started."""
        job = InFlight(claim, safe_until=0.0)
        job.transition = Transition(claim, Outcome.CANCELLED, State.CANCELLED)
        self._in_flight.add(job)
        self._ended.append(job)

    def forget(self, hold: ClaimKey) -> None:
        self._session.tokens.pop(hold, None)
        self._events.forget(hold)
