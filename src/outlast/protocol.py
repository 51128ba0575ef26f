"""The wire format of the remote protocol, for both sides: paths, limits, words, frames, reports.

    server ──▶ worker    frames down a stream: hello, offers, renew, bye
    worker ──▶ server    calls with many reports: renew, complete, fail, release, event
    server ──▶ worker    one answer for each report

docs/reference/remote-protocol.md describes it for workers in other languages. The server validates
reports with the models of service/dequeue/report_models.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter, itemgetter
from typing import Any, Literal, NotRequired, TypedDict

from .model.breaker import Breaker
from .model.claim import Claim
from .model.errors import ServerUnavailable
from .model.lifecycle import Outcome
from .model.outcome import Transition
from .model.retry import Retry

STREAM_PATH = "/api/v1/dequeue"
REPORTS_PATH = "/api/v1/tasks/reports"
STEPS_PATH = "/api/v1/tasks/steps"
PREREQUISITES_PATH = "/api/v1/tasks/prerequisites"
SLOW_DOWN_PATH = "/api/v1/tasks/slow-down"
SCHEDULES_PATH = "/api/v1/dequeue/schedules"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"

MAX_FRAME_BYTES = 256 * 1024  # of one frame, unless a single job is larger
MAX_LINE_BYTES = 64 * 1024 * 1024  # of one line that a worker reads
MAX_REPORTS = 1000  # in one call
MAX_CALL_BYTES = 1_000_000  # of one call, unless a single report is larger
MAX_EVENT_LENGTH = 200_000  # characters of one event's data
MAX_CREDIT = 10_000  # jobs that one worker may hold

Status = Literal["ok", "duplicate", "lost", "busy", "refused"]
OUTCOME_WORDS = {
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "timed-out",
    Outcome.PERMANENT: "permanent",
    Outcome.UNDECODABLE: "undecodable",
    Outcome.POSTPONED: "later",
    Outcome.CANCELLED: "cancelled",
}
OUTCOME_OF_WORD = {word: outcome for outcome, word in OUTCOME_WORDS.items()}


class AnswerFields(TypedDict):
    """The answer to one report."""

    status: Status
    cancel: bool
    reason: str | None
    locked: NotRequired[bool]


FrameFields = dict[str, Any]
Sign = Callable[[Claim], str]

encode_json = json.JSONEncoder(separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring_ascii

# Frames

# Fields of a claim that an offer has; the others are for the server only.
_PRIVATE_FIELDS = {"has_dependents", "has_hooks", "worker", "offered_by"}
OFFER_FIELDS = tuple(name for name in Claim._fields if name not in _PRIVATE_FIELDS)
_offer_values = attrgetter(*OFFER_FIELDS)
_required_values = itemgetter(*Claim._fields[: Claim._fields.index("worker")])


def offer_frames(claims: Sequence[Claim], sign: Sign) -> Iterator[FrameFields]:
    """Frames with offers, each of a size that a client can read at once."""
    jobs: list[dict[str, Any]] = []
    size = 0
    for claim in claims:
        if jobs and size + len(claim.args) > MAX_FRAME_BYTES:
            yield {"type": "offers", "jobs": jobs}
            jobs, size = [], 0
        jobs.append(_offer_json(claim, sign))
        size += len(claim.args)
    if jobs:
        yield {"type": "offers", "jobs": jobs}


def _offer_json(claim: Claim, sign: Sign) -> dict[str, object]:
    """An offer as JSON. `args` stays JSON text: unreadable arguments affect their own job only."""
    fields = dict(zip(OFFER_FIELDS, _offer_values(claim), strict=True))
    fields["token"] = sign(claim)
    return fields


def offered_claim(job: dict[str, Any], worker: str) -> Claim:
    """An offered job as a claim of this worker. Fields of a newer server are ignored."""
    flow, lane = job.get("flow"), job.get("lane")
    return Claim._make((*_required_values(job), worker, flow, False, False, lane, None))


async def read_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[FrameFields]:
    """The frames of a stream of JSON lines, however the network cuts it; empty lines are
    keep-alives."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield _read_frame(line)
        if len(rest) > MAX_LINE_BYTES:
            raise ServerUnavailable(reason="its stream has an endless line")


def _read_frame(line: bytes) -> FrameFields:
    try:
        frame = json.loads(line)
    except ValueError:
        frame = None
    if not isinstance(frame, dict) or "type" not in frame:
        raise ServerUnavailable(reason="its stream has an invalid frame")
    return frame


# Reports


def encode_outcome(
    token: str, transition: Transition, policy: Retry | None, breaker: Breaker | None = None
) -> str:
    """The report of an attempt's end. Most succeed without follow-up jobs: these are encoded
    fast."""
    if transition.trace is not None and transition.outcome is not Outcome.RELEASED:
        fields = _end_fields(transition, policy, breaker)
        return encode_json({"token": token, **fields, "trace": transition.trace})
    if transition.outcome is Outcome.SUCCEEDED and not transition.jobs:
        result = "null" if transition.result is None else _quoted(transition.result)
        return f'{{"do":"complete","token":{_quoted(token)},"result":{result}}}'
    return encode_json({"token": token, **_end_fields(transition, policy, breaker)})


def _end_fields(
    transition: Transition, policy: Retry | None, breaker: Breaker | None
) -> dict[str, object]:
    match transition.outcome:
        case Outcome.SUCCEEDED:
            jobs = [asdict(job) for job in transition.jobs]
            return {"do": "complete", "result": transition.result, "jobs": jobs}
        case Outcome.RELEASED:
            why = {"error": transition.error} if transition.error else {}
            return {"do": "release", "delay": transition.delay, **why}
        case outcome:
            return _failure_fields(OUTCOME_WORDS[outcome], transition, policy, breaker)


def _failure_fields(
    how: str, transition: Transition, policy: Retry | None, breaker: Breaker | None
) -> dict[str, object]:
    fields: dict[str, object] = {"do": "fail", "how": how, "error": transition.error}
    if transition.outcome is Outcome.POSTPONED:
        fields["delay"] = transition.delay
    elif transition.min_delay is not None:  # the server knows the policy, but not this
        fields["delay"] = transition.min_delay
    if policy is not None:
        fields["retry"] = asdict(policy)
    if transition.outage is not None:
        fields["outage"] = transition.outage
        if breaker is not None:  # the worker decides what counts as an outage
            named = ("failures", "probe_first", "probe_cap")
            fields["breaker"] = {name: getattr(breaker, name) for name in named}
    return fields


def encode_renewal(token: str) -> str:
    return f'{{"do":"renew","token":{_quoted(token)}}}'


def encode_event(token: str, n: int, kind: str, data: str) -> str:
    return encode_json({"do": "event", "token": token, "n": n, "kind": kind, "data": data})


def encode_call(reports: Sequence[str], ahead: int = 0) -> str:
    more = f',"ahead":{ahead}' if ahead else ""
    return f'{{"reports":[{",".join(reports)}]{more}}}'


def split_calls(reports: Sequence[str]) -> list[list[str]]:
    """Split reports into parts, each for one call."""
    calls: list[list[str]] = []
    size = 0
    for report in reports:
        size += len(report) + 1
        if not calls or size > MAX_CALL_BYTES or len(calls[-1]) >= MAX_REPORTS:
            calls.append([])
            size = len(report)
        calls[-1].append(report)
    return calls
