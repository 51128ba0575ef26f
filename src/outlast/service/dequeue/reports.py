"""What remote workers say of their jobs, many in one call, each with its token.

    renew     I hold it (the first time: I accept it)
    complete  it succeeded, with this result and these follow-up jobs
    fail      it did not: retry, give up, call again later, was cancelled
    release   I give it back, unspent
    event     it says something: progress, a log line

Events are stored before any outcome that comes with them or after them. All outcomes leave through
the same door as a local worker's, and each is answered for itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ...model.breaker import Breaker
from ...model.errors import InvalidInput
from ...model.job import Claim, Hold
from ...model.outcome import Ended, Transition, decide
from ...model.retry import Retry
from ...ops import offer as ops
from ...ops.claim import Wanted
from ...ops.finish import Finished
from ...ops.reach import Reach
from ...tracing import known
from ...worker.held import Hands, Held
from ...worker.returns import Returns
from .desk import Desk
from .said import Answer, BreakerTerms, Policy, Report, Status, check_json, ended_by
from .stream import Stream


class Handing(Returns):
    """Outcomes on their way in, and how each was taken."""

    doubt = 1  # of one call: the next one has another batch

    def __init__(self, desk: Desk) -> None:
        super().__init__(
            desk.store, desk.steady, Hands(), desk.figures, desk.carrier.decide, desk.started
        )
        self.taken: dict[Hold, Status] = {}
        self.refused = desk.returns.refused  # which the desk's healer puts on record
        self._desk = desk
        self.held: list[Claim] = []  # to be held on to in the same round trip
        self.kept = ops.Kept({})
        self.dropped: dict[tuple[Hold, int], str] = {}  # events that cannot be stored, and why

    def put(self, transition: Transition) -> None:
        held = Held(transition.claim, safe_until=0.0, transition=transition)
        self._hands.take(held)
        self.add(held)

    async def _claim(self, plain: list[Transition], wanted: Wanted | None) -> list[Claim]:
        """As a local worker does, but that others are held on to as well."""
        assert wanted is None or isinstance(wanted, ops.Asked)
        lease = self._desk.terms.remote_lease
        try:
            finished, self.kept, claims = await self._steady.arun(
                ops.trade, plain, self.held, lease, wanted
            )
        except Exception as error:
            if not plain or not self._takes_apart(error):
                raise
            finished, claims = await self._one_by_one(plain, []), []
        self._failures = 0
        self._settle(finished)
        return claims

    def _drop(self, event: dict[str, Any], error: Exception) -> None:
        super()._drop(event, error)
        hold = event["job"], event["fence"], event["worker"]
        self.dropped[hold, event["n"]] = str(error)

    def _settle(self, finished: Finished) -> None:
        super()._settle(finished)
        for transition, _ in finished.accepted:
            self.taken[transition.claim.hold] = "ok"
        for transition in finished.again:
            self.taken[transition.claim.hold] = "duplicate"
        for transition in finished.lost:
            self.taken[transition.claim.hold] = "lost"
        self._counts["duplicate_delivery"] += len(finished.again)


class Taking:
    """One call's reports: sorted, handed in, answered in the order in which they came."""

    def __init__(self, desk: Desk, key: bytes, reach: Reach) -> None:
        self._desk = desk
        self._key = key
        self._reach = reach
        self._handing = Handing(desk)
        self._ending: list[Claim] = []
        self._late: list[dict[str, Any]] = []
        self._said: list[ops.Said] = []
        self._stored: set[tuple[Hold, int]] = set()

    async def take(self, reports: Sequence[Report], ahead: int = 0) -> list[Answer]:
        sorted_in = [self._sort_in(report) for report in reports]
        await self._record_late()
        await self._hand_in(self._stream(ahead))
        await self._hold()
        await self._look_for_events()
        self._desk.accepted(self._handing.kept.cancelling)
        self._desk.forget(self._handing.taken)
        return [
            given if isinstance(given, dict) else self._answer(report, given)
            for report, given in zip(reports, sorted_in, strict=True)
        ]

    def _sort_in(self, report: Report) -> Claim | Answer:
        """Put it where it belongs, or say at once why it is refused."""
        claim = self._desk.read(report.token, self._key)
        if claim is None or not self._reach.has(claim.tenant, claim.queue):
            return _answer("refused", reason="this is no task token for you")
        try:
            self._put(report, claim)
        except InvalidInput as error:
            return _answer("refused", reason=str(error)[:1000])
        return claim

    def _put(self, report: Report, claim: Claim) -> None:
        if report.do == "renew":
            self._handing.held.append(claim)
        elif report.do == "event":
            self._say(report, claim)
        else:
            ended = ended_by(report, claim, self._reach)
            ended = self._judged(claim, ended, report.breaker)
            transition = self._decided(claim, ended, report.retry)
            self._handing.put(transition._replace(trace=known(report.trace)))
            self._ending.append(claim)

    def _say(self, report: Report, claim: Claim) -> None:
        check_json("data", report.data)
        self._said.append((claim, report.n))
        if report.late:
            said = {"job": claim.id, **claim.guard, "attempt": claim.attempt}
            said |= {"n": report.n, "kind": report.kind, "data": report.data}
            self._late.append(said)
        else:
            self._handing.say(claim, report.kind, report.data, report.n)

    def _judged(self, claim: Claim, ended: Ended, terms: BreakerTerms | None) -> Ended:
        """What it means for the task's circuit breaker, which is kept here for remote workers. It
        is everybody's: a worker of one tenant neither opens nor closes it."""
        if self._reach.tenant is not None:
            return ended
        breaker = Breaker() if terms is None else Breaker(**terms.model_dump())
        judged = self._desk.breakers.ended(claim, ended, breaker)
        if self._desk.breakers.pending:
            self._desk.news()
        return judged

    def _decided(self, claim: Claim, ended: Ended, policy: Policy | None) -> Transition:
        """The job's own policy comes first, then what the worker knows of the task, then what we
        know of it."""
        if claim.retry or policy is None:
            return self._desk.carrier.decide(claim, ended)
        return decide(claim, ended, Retry(**policy.model_dump()), random.random())

    async def _hold(self) -> None:
        """What was not held on to in passing: it is lost, or somebody has its row."""
        kept = self._handing.kept
        if left := [claim for claim in self._handing.held if claim.hold not in kept.cancelling]:
            lease = self._desk.terms.remote_lease
            found = await self._desk.steady.arun(ops.hold, left, lease)
            self._handing.kept = ops.Kept(kept.cancelling | found.cancelling, found.busy)

    def _stream(self, ahead: int) -> Stream | None:
        """The worker's, if it is here."""
        claims = (*self._ending, *self._handing.held)
        stream = next((s for claim in claims if (s := self._desk.stream_of(claim))), None)
        if stream:
            stream.credit.take_ahead(ahead)
        return stream

    async def _hand_in(self, stream: Stream | None) -> None:
        """And claim for the worker's stream in the same round trip, as a local worker would."""
        if not self._handing:
            return
        asked = stream.along(len(self._ending)) if stream else None
        try:
            claims, _ = await self._handing.exchange(asked)
        except BaseException:
            if stream and asked:
                stream.not_claimed_along(asked)
            raise
        if stream and asked:
            stream.claimed_along(asked, claims)

    async def _record_late(self) -> None:
        if self._late:
            await self._desk.store.arun(ops.record_late, self._late)

    async def _look_for_events(self) -> None:
        """Those of a claim that was lost are not kept, and whoever said them is to know."""
        if self._said:
            self._stored = await self._desk.store.arun(ops.kept, self._said)

    def _answer(self, report: Report, claim: Claim) -> Answer:
        if report.do == "renew":
            kept = self._handing.kept
            return _answer(_status(kept, claim.hold), kept.cancelling.get(claim.hold, False))
        if report.do == "event":
            return self._answer_event((claim.hold, report.n))
        return _answer(self._handing.taken.get(claim.hold, "busy"))

    def _answer_event(self, event: tuple[Hold, int]) -> Answer:
        if reason := self._handing.dropped.get(event):
            return _answer("refused", reason=reason[:1000])
        return _answer("ok" if event in self._stored else "lost")


def _answer(status: Status, cancel: bool = False, reason: str | None = None) -> Answer:
    """As `Answered` has it: there are many, and these are cheaper."""
    return {"status": status, "cancel": cancel, "reason": reason}


def _status(kept: ops.Kept, hold: Hold) -> Status:
    if hold in kept.cancelling:
        return "ok"
    return "busy" if hold in kept.busy else "lost"
