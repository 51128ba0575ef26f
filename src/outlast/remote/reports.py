"""Outcomes, acceptances and events on their way to the server: together, as many as there are.

What is said of a job goes before its outcome, so a completion that the server took implies that it
has the events. What the server will not take because of one report is sent in halves, until the one
is found that is to blame; it becomes a failure that says so.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import InvalidOption, ServerUnavailable
from ..model.job import Claim, Hold
from ..model.lifecycle import Outcome, State
from ..model.outcome import Ended, Transition, release
from ..model.text import describe
from ..ops.claim import Wanted
from ..ops.finish import Finished
from ..worker.held import Held, facts
from ..worker.loops import Backoff
from ..worker.returns import BRISK, Events, Returns
from .line import TooMuch
from .room import FarRoom
from .spelling import MOST, MOST_BYTES, PATH, call, outcome, parts, renewal, spelled

if TYPE_CHECKING:
    from .worker import RemoteWorker

log = logging.getLogger("outlast.worker")

LONGEST_EVENT = 200_000  # characters of what is said at once


class Said(NamedTuple):
    """An event, ready to be sent, and where it ends in the spool."""

    text: str
    end: int


class Offer(NamedTuple):
    """A job that was offered, and when by our clock."""

    claim: Claim
    at: float


class Reports(Returns):
    def __init__(self, worker: RemoteWorker) -> None:
        super().__init__(
            worker.store, worker.steady, worker.hands, worker.figures, worker.carrier.decide,
            worker.started,
        )  # fmt: skip
        self._worker = worker
        self._offers: deque[Offer] = deque()
        self._longest = 0.0  # seconds that a handler took, of those that ended last
        self._said: deque[Said] = deque()
        self._saying = threading.Lock()
        self._spoken: dict[Hold, int] = {}  # how many events each claim has said
        self._patience = Backoff(first=0.05, cap=5.0)  # where the server cannot take one for now

    def __len__(self) -> int:
        """What there is to say now: offers that there is no room for wait."""
        accepting = min(len(self._offers), self._room.for_claims()) if self._offers else 0
        waiting = len(self._keyed) if time.monotonic() >= self._keyed_at else 0
        return len(self._ended) + accepting + len(self._said) + waiting

    @property
    def _room(self) -> FarRoom:
        return self._worker.room

    def add(self, held: Held) -> None:
        if held.began_at:
            self._longest = max(self._longest, time.monotonic() - held.began_at)
        self._ended.append(held)

    @property
    def offered(self) -> bool:
        return bool(self._offers)

    def offer(self, claims: Sequence[Claim]) -> None:
        now = time.monotonic()
        self._offers.extend([Offer(claim, now) for claim in claims])

    def put_back(self, after: float) -> None:
        """Offers that have waited for room for so long: others may have some."""
        before = time.monotonic() - after
        if self._offers and self._offers[0].at <= before:
            kept = self._room.for_claims()
            while len(self._offers) > kept and self._offers[-1].at <= before:
                self.give_back(self._offers.pop().claim)

    def decline(self) -> None:
        """Nothing is accepted any more."""
        while self._offers:
            self.give_back(self._offers.pop().claim)

    def give_back(self, claim: Claim) -> None:
        """What was not begun, unspent."""
        held = Held(claim, safe_until=0.0, transition=release(claim))
        self._hands.take(held)
        self._ended.append(held)

    def say(self, claim: Claim, kind: str, data: str, n: int | None = None) -> None:
        """From any thread: on disk first, then on its way."""
        if len(data) > LONGEST_EVENT:
            told = f"is {len(data):,} characters long; at most {LONGEST_EVENT:,} can be sent"
            raise InvalidOption(option="event", reason=told)
        with self._saying:  # one number each; and in the order of the file, or one that is
            # acknowledged would stand for another that was not sent
            if n is None:
                n = self._spoken.get(claim.hold, 0)
            self._spoken[claim.hold] = n + 1
            event = {"do": "event", "token": self._token(claim), "n": n, "kind": kind, "data": data}
            text = spelled(event)
            end = self._worker.spool.append(text.encode())
            if end is None:
                self._counts["events_dropped"] += 1
            else:
                self._said.append(Said(text, end))

    def said_by(self, claim: Claim) -> Events:
        return []

    async def exchange(self, wanted: Wanted | None = None) -> tuple[list[Claim], float]:
        """Say everything, and start what was accepted."""
        await self._send_events()
        asked_at = time.monotonic()
        self._end_waits()
        items = [self._item(held) for held in self._ended]
        accepting = self._next_offers()
        ended, self._ended = self._ended, []
        if ended:
            self.brisk, self._longest = self._longest < BRISK, 0.0
        items += [renewal(self._token(offer.claim)) for offer in accepting]
        try:
            answers = await self.send(items, self._room.ahead())
        except BaseException:
            self._ended = [held for held in ended if self._hands.holds(held)] + self._ended
            self._offers.extendleft(reversed(accepting))
            raise
        self._taken(ended, answers[: len(ended)])
        self._accepted(accepting, answers[len(ended) :], asked_at)
        return [], asked_at

    def _end_waits(self) -> None:
        """What the server could not take is sent again when its time has come."""
        if self._keyed and time.monotonic() >= self._keyed_at:
            self._ended += [held for held in self._keyed if self._hands.holds(held)]
            self._keyed = []

    def _wait_with(self, held: Held) -> None:
        """The server cannot take it for now: it is sent again later, not at once for ever."""
        self._keyed.append(held)
        if len(self._keyed) == 1:
            wait = self._patience.failed()
            self._keyed_at = time.monotonic() + wait
            asyncio.get_running_loop().call_later(wait, self._worker.ears.hear)

    def _item(self, held: Held) -> str:
        """An outcome as it is sent. One that cannot be spelled becomes a failure that says so."""
        assert held.transition is not None
        try:
            return self.outcome(held.transition)
        except Exception as error:
            self._counts["unstorable"] += 1
            ended = Ended(Outcome.PERMANENT, error=describe(error))
            held.transition = self._decide(held.claim, ended)
            return self.outcome(held.transition)

    def _next_offers(self) -> list[Offer]:
        if not self._offers:
            return []
        number = min(len(self._offers), self._room.for_claims())
        return [self._offers.popleft() for _ in range(number)]

    async def _send_events(self) -> None:
        """All that was said up to now; what is not acknowledged is sent again."""
        while self._said:
            batch = [self._said[0]]
            size = len(batch[0].text)
            for said in list(self._said)[1:MOST]:
                size += len(said.text)
                if size > MOST_BYTES:
                    break
                batch.append(said)
            for answer in await self.send([said.text for said in batch]):
                self._told(answer)
                self._said.popleft()
            self._worker.spool.acknowledge(batch[-1].end)

    def _told(self, answer: dict[str, Any]) -> None:
        """What became of an event. What will never be kept is not said again."""
        if answer["status"] == "ok":
            return
        self._counts["events_dropped"] += 1
        if answer["status"] == "lost":
            log.info("an event is not kept: the claim under which it was said is lost")
            self._worker.keeper.renew_now()  # which learns of all that is lost, and stops it
        else:
            log.warning("an event cannot be stored: %s", answer["reason"])

    async def send(self, items: Sequence[str], ahead: int = 0) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        for part in parts(items):
            answers += await self._send_part(part, ahead)
        return answers

    async def _send_part(self, part: Sequence[str], ahead: int) -> list[dict[str, Any]]:
        try:
            answer = await self._worker.line.post(PATH, call(part, ahead))
        except TooMuch as error:
            if len(part) == 1:
                return [{"status": "refused", "reason": str(error)}]
            half = len(part) // 2
            first = await self._send_part(part[:half], ahead)
            return first + await self._send_part(part[half:], ahead)
        given: list[dict[str, Any]] = answer["reports"]
        if len(given) != len(part):
            raise ServerUnavailable(reason="it answered fewer reports than it was sent")
        return given

    # What goes out

    def _token(self, claim: Claim) -> str:
        return self._worker.tokens.get(claim.hold, "")

    def outcome(self, transition: Transition) -> str:
        definition = self._worker.app.registry.get(transition.claim.task)
        policy = definition.retry if definition else None
        breaker = definition.breaker if definition else None
        if not self._worker.server_takes_traces:
            transition = transition._replace(trace=None)
        return outcome(self._token(transition.claim), transition, policy, breaker)

    # What comes back

    def _taken(self, ended: Sequence[Held], answers: Sequence[dict[str, Any]]) -> None:
        finished = Finished()
        for held, answer in zip(ended, answers, strict=True):
            assert held.transition is not None
            match answer["status"]:
                case "ok" | "duplicate":
                    finished.accepted.append((held.transition, held.transition.to))
                    self._patience.succeeded()
                case "busy":
                    self._wait_with(held)
                case "refused" if held.transition.outcome is Outcome.SUCCEEDED:
                    self._fail(held, answer["reason"])
                case _:
                    finished.lost.append(held.transition)
        self._settle(finished)
        for transition in (*(done for done, _ in finished.accepted), *finished.lost):
            self.forget(transition.claim.hold)

    def _fail(self, held: Held, reason: str | None) -> None:
        """A success that the server will not take becomes a failure that says so."""
        log.error("job %s: its outcome was refused: %s", held.claim.id, reason,
                  extra=facts(held.claim))  # fmt: skip
        error = describe(InvalidOption(option="result", reason=f"was refused: {reason}"))
        held.transition = self._decide(held.claim, Ended(Outcome.PERMANENT, error=error))
        self._ended.append(held)

    def _accepted(
        self, offers: Sequence[Offer], answers: Sequence[dict[str, Any]], asked_at: float
    ) -> None:
        starting = []
        for offer, answer in zip(offers, answers, strict=True):
            claim = offer.claim
            if answer["status"] == "busy":
                self._offers.append(offer)
            elif answer["status"] != "ok":
                self._counts["late"] += 1
                self.forget(claim.hold)
            elif answer["cancel"]:
                self._cancelled(claim)
            elif self._worker.stopping:
                self.give_back(claim)
            else:
                starting.append(claim)
        self._worker.start(starting, asked_at)

    def _cancelled(self, claim: Claim) -> None:
        """Somebody wanted it stopped before it began."""
        held = Held(claim, safe_until=0.0)
        held.transition = Transition(claim, Outcome.CANCELLED, State.CANCELLED)
        self._hands.take(held)
        self._ended.append(held)

    def forget(self, hold: Hold) -> None:
        self._worker.tokens.pop(hold, None)
        self._spoken.pop(hold, None)
