"""Reports of remote workers about their jobs: many per call, each with its task token.

    renew     the worker holds the job (the first time: it accepts the offer)
    complete  the job succeeded, with this result and these follow-up jobs
    fail      it did not: retry, dead, retry later, cancelled
    release   the worker releases the job, unspent
    event     progress, a log line, or streamed output

Events are stored before the outcomes that are reported with or after them. All outcomes use the
same finish as a local worker's, and each report gets its own response.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from ...model.breaker import Breaker
from ...model.claim import Claim, ClaimEvent, ClaimKey
from ...model.errors import InvalidInput
from ...model.outcome import AttemptEnd, Transition, decide
from ...model.retry import Retry
from ...model.stream import MAX_ROW_NUMBER, STREAM
from ...ops import offer as ops
from ...ops.access import Access
from ...ops.claim import ClaimRequest
from ...ops.finish import Finished
from ...protocol import AnswerFields, Status
from ...tracing import valid_traceparent
from ...worker.finished_jobs import FinishedJobs
from ...worker.finisher import Finisher
from ...worker.in_flight import InFlight, InFlightJobs
from ..problems import Forbidden
from ..queue_names import QueueNames, TooManyQueues
from ..tenant_lanes import refuse_foreign_lanes
from .dispatcher import Dispatcher
from .followups import named_lanes
from .report_models import (
    BreakerTerms,
    Policy,
    TaskReport,
    attempt_end_of,
    check_json,
)
from .stream import WorkerStream

DEFAULT_BREAKER = Breaker()


class ReportFinisher:
    """Stores outcomes, and has the result of each."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._in_flight = InFlightJobs()
        self._finished = FinishedJobs(
            self._in_flight, dispatcher.metrics, dispatcher.became_ready, dispatcher.refused,
            dispatcher.slot_freed,
        )  # fmt: skip
        # One failure suffices to split a batch: the next call has another finisher.
        self._finisher = Finisher(
            dispatcher.store,
            self._in_flight,
            dispatcher.counts,
            self._apply,
            dispatcher.decide,
            self._finish_and_claim,
        )
        self._finisher.split_after, self._finisher.on_drop = 1, self._drop
        self.accepted: dict[ClaimKey, Status] = {}
        self.held: list[Claim] = []  # to renew in the same round trip
        self.hold_result = ops.HoldResult({})
        self.dropped: dict[tuple[ClaimKey, int], str] = {}  # unstorable events, with the error

    def put(self, transition: Transition) -> None:
        held = InFlight(transition.claim, safe_until=0.0, transition=transition)
        self._in_flight.add(held)
        self._finisher.add(held)

    def add_event(self, claim: Claim, kind: str, data: str, n: int) -> None:
        self._finisher.add_event(claim, kind, data, n)

    def __len__(self) -> int:
        return len(self._finisher)

    async def flush_and_claim(self, request: ops.OfferRequest | None) -> list[Claim]:
        claims, _ = await self._finisher.flush_and_claim(request)
        return claims

    async def _finish_and_claim(
        self, plain: list[Transition], request: ClaimRequest | None
    ) -> tuple[Finished, list[Claim]]:
        """Finish and claim as a local worker does, and renew other claims as well."""
        assert request is None or isinstance(request, ops.OfferRequest)
        lease = self._dispatcher.service_settings.remote_lease
        finished, self.hold_result, claims = await self._dispatcher.steady.arun(
            ops.finish_hold_and_claim, plain, self.held, lease, request
        )
        return finished, claims

    def _drop(self, event: ClaimEvent, error: Exception) -> None:
        hold = event["job"], event["fence"], event["worker"]
        self.dropped[hold, event["n"]] = str(error)

    def _apply(self, finished: Finished) -> None:
        self._finished.apply(finished)
        for transition, _ in finished.accepted:
            self.accepted[transition.claim.claim_key] = "ok"
        for transition in finished.duplicates:
            self.accepted[transition.claim.claim_key] = "duplicate"
        for transition in finished.lost:
            self.accepted[transition.claim.claim_key] = "lost"
        self._dispatcher.counts["duplicate_delivery"] += len(finished.duplicates)


class ReportBatch:
    """The reports of one call: sorted and applied; responses are in their order."""

    def __init__(
        self, dispatcher: Dispatcher, key: bytes, reach: Access, queue_names: QueueNames
    ) -> None:
        self._dispatcher = dispatcher
        self._key = key
        self._reach = reach
        self._queue_names = queue_names
        self._finisher = ReportFinisher(dispatcher)
        self._ending: list[Claim] = []
        self._late: list[dict[str, object]] = []
        self._events: list[ops.EventKey] = []
        self._streamed: list[ops.EventKey] = []
        self._stored: set[tuple[ClaimKey, int]] = set()

    async def process(self, reports: Sequence[TaskReport], prefetch: int = 0) -> list[AnswerFields]:
        sorted_in = [await self._route(report) for report in reports]
        await self._record_late()
        await self._flush(self._stream(prefetch))
        await self._hold_unrenewed()
        await self._find_stored_events()
        self._dispatcher.accepted(self._finisher.hold_result.cancelling)
        self._dispatcher.forget(self._finisher.accepted)
        return [
            given if isinstance(given, dict) else self._answer(report, given)
            for report, given in zip(reports, sorted_in, strict=True)
        ]

    async def _route(self, report: TaskReport) -> Claim | AnswerFields:
        """Sort a report by kind, or refuse it at once."""
        claim = self._dispatcher.claim_of(report.token, self._key)
        if claim is None or not self._reach.allows(claim.tenant, claim.queue):
            return _answer("refused", reason="this is not a task token of yours")
        try:
            await self._put(report, claim)
        except (InvalidInput, TooManyQueues, Forbidden) as error:
            return _answer("refused", reason=str(error)[:1000])
        return claim

    async def _put(self, report: TaskReport, claim: Claim) -> None:
        if report.do == "renew":
            self._finisher.held.append(claim)
        elif report.do == "event":
            self._add_event(report, claim)
        else:
            ended = attempt_end_of(report, claim, self._reach)
            if ended.jobs:
                if (tenant := self._reach.tenant) is not None:
                    lanes = named_lanes(ended.jobs)
                    await refuse_foreign_lanes(self._dispatcher.store, tenant, lanes)
                await self._queue_names.admit(ended.jobs)
            ended = self._apply_breaker(claim, ended, report.breaker)
            transition = self._transition(claim, ended, report.retry)
            if (trace := valid_traceparent(report.trace)) is not None:
                transition = transition._replace(trace=trace)
            self._finisher.put(transition)
            self._ending.append(claim)

    def _add_event(self, report: TaskReport, claim: Claim) -> None:
        check_json("data", report.data)
        if report.kind == STREAM:
            self._add_stream(report, claim)
            return
        self._events.append((claim, report.n))
        if report.late:
            event = {"job": claim.id, **claim.guard, "attempt": claim.attempt}
            event |= {"n": report.n, "kind": report.kind, "data": report.data}
            self._late.append(event)
        else:
            self._finisher.add_event(claim, report.kind, report.data, report.n)

    def _add_stream(self, report: TaskReport, claim: Claim) -> None:
        """Store a row of output. Output left by a dead worker is dropped: its attempt is over, and
        readers may have continued with the next."""
        if not isinstance(json.loads(report.data), list):
            raise InvalidInput("data of a stream must be an array of chunks")
        if report.n >= MAX_ROW_NUMBER:
            raise InvalidInput(f"n of a stream must be less than {MAX_ROW_NUMBER}")
        if report.late:
            self._stored.add((claim.claim_key, report.n))
            return
        self._streamed.append((claim, report.n))
        self._finisher.add_event(claim, STREAM, report.data, report.n)

    def _apply_breaker(
        self, claim: Claim, ended: AttemptEnd, terms: BreakerTerms | None
    ) -> AttemptEnd:
        """Apply an outcome to the task's circuit breaker, which this server keeps for remote
        workers. Breakers are shared by all tenants: a worker of one tenant neither opens nor closes
        them."""
        if self._reach.tenant is not None:
            return ended
        breaker = DEFAULT_BREAKER if terms is None else Breaker(**terms.model_dump())
        judged = self._dispatcher.breakers.judge_end(claim, ended, breaker)
        if self._dispatcher.breakers.pending:
            self._dispatcher.wakeup.set()
        return judged

    def _transition(self, claim: Claim, ended: AttemptEnd, policy: Policy | None) -> Transition:
        """The transition by the job's own retry policy, else the worker's for the task, else this
        server's."""
        if claim.retry or policy is None:
            return self._dispatcher.decide(claim, ended)
        return decide(claim, ended, Retry(**policy.model_dump()), random.random())

    async def _hold_unrenewed(self) -> None:
        """Renew claims that were not renewed together with outcomes: they are lost, or their rows
        are locked."""
        hold_result = self._finisher.hold_result
        if left := [
            claim for claim in self._finisher.held if claim.claim_key not in hold_result.cancelling
        ]:
            found = await self._dispatcher.renewals.hold(left)
            theirs = {claim.claim_key for claim in left} & found.cancelling.keys()
            cancelling = hold_result.cancelling | {hold: found.cancelling[hold] for hold in theirs}
            self._finisher.hold_result = ops.HoldResult(cancelling, found.busy, found.locked)

    def _stream(self, prefetch: int) -> WorkerStream | None:
        """The worker's stream, if it is open here."""
        claims = (*self._ending, *self._finisher.held)
        stream = next((s for claim in claims if (s := self._dispatcher.stream_of(claim))), None)
        if stream:
            stream.credit.set_prefetch(prefetch)
        return stream

    async def _flush(self, stream: WorkerStream | None) -> None:
        """Finish, and claim for the worker's stream in the same round trip, as a local worker
        does."""
        if not self._finisher:
            return
        request = stream.piggyback_request(len(self._ending)) if stream else None
        if stream is None or request is None:
            await self._finisher.flush_and_claim(None)
            return
        with self._dispatcher.claiming():
            try:
                claims = await self._finisher.flush_and_claim(request)
            except BaseException:
                stream.piggyback_failed(request)
                raise
            stream.piggyback_claimed(request, claims)

    async def _record_late(self) -> None:
        if self._late:
            await self._dispatcher.store.arun(ops.record_late, self._late)

    async def _find_stored_events(self) -> None:
        """Find which events were stored: those of lost claims are not, and their status says so."""
        if self._events:
            self._stored |= await self._dispatcher.store.arun(ops.stored_events, self._events)
        if self._streamed:
            self._stored |= await self._dispatcher.store.arun(ops.stored_streams, self._streamed)

    def _answer(self, report: TaskReport, claim: Claim) -> AnswerFields:
        if report.do == "renew":
            return _answer_renewal(self._finisher.hold_result, claim.claim_key)
        if report.do == "event":
            return self._answer_event((claim.claim_key, report.n))
        return _answer(self._finisher.accepted.get(claim.claim_key, "busy"))

    def _answer_event(self, event: tuple[ClaimKey, int]) -> AnswerFields:
        if reason := self._finisher.dropped.get(event):
            return _answer("refused", reason=reason[:1000])
        return _answer("ok" if event in self._stored else "lost")


def _answer(status: Status, cancel: bool = False, reason: str | None = None) -> AnswerFields:
    """A `ReportAnswer` as a dict: there are many, and dicts are cheaper."""
    return {"status": status, "cancel": cancel, "reason": reason}


def _answer_renewal(kept: ops.HoldResult, hold: ClaimKey) -> AnswerFields:
    if hold in kept.cancelling:
        return _answer("ok", kept.cancelling[hold])
    if hold not in kept.busy:
        return _answer("lost")
    return {**_answer("busy"), "locked": True} if kept.locked else _answer("busy")
