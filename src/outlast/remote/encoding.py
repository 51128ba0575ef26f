"""How what a worker says looks on the line: each report as JSON text, and calls of many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..model.breaker import Breaker
from ..model.lifecycle import Outcome
from ..model.outcome import Transition
from ..model.retry import Retry
from .spool import SpoolRecord

REPORTS_PATH = "/api/v1/tasks/reports"
MAX_REPORTS = 1000  # reports in one call
MAX_CALL_BYTES = 1_000_000  # of one call, unless a single report is larger
OUTCOME_WORDS = {
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "timed-out",
    Outcome.PERMANENT: "permanent",
    Outcome.UNDECODABLE: "undecodable",
    Outcome.POSTPONED: "later",
    Outcome.CANCELLED: "cancelled",
}


def encode_outcome(
    token: str, transition: Transition, policy: Retry | None, breaker: Breaker | None = None
) -> str:
    """How an attempt ended. Most succeed and add nothing, and these are spelled in no time."""
    if transition.trace is not None and transition.outcome is not Outcome.RELEASED:
        fields = _end_fields(transition, policy, breaker)
        return encode_json({"token": token, **fields, "trace": transition.trace})
    if transition.outcome is Outcome.SUCCEEDED and not transition.jobs:
        result = "null" if transition.result is None else _quoted(transition.result)
        return f'{{"do":"complete","token":{_quoted(token)},"result":{result}}}'
    return encode_json({"token": token, **_end_fields(transition, policy, breaker)})


def _end_fields(
    transition: Transition, policy: Retry | None, breaker: Breaker | None
) -> dict[str, Any]:
    match transition.outcome:
        case Outcome.SUCCEEDED:
            jobs = [asdict(job) for job in transition.jobs]
            return {"do": "complete", "result": transition.result, "jobs": jobs}
        case Outcome.RELEASED:
            why = {"error": transition.error} if transition.error else {}
            return {"do": "release", "delay": transition.delay, **why}
        case how:
            fields: dict[str, Any] = {
                "do": "fail",
                "how": OUTCOME_WORDS[how],
                "error": transition.error,
            }
            if how is Outcome.POSTPONED:
                fields["delay"] = transition.delay
            elif transition.min_delay is not None:  # the server knows the policy, and not this
                fields["delay"] = transition.min_delay
            if policy is not None:
                fields["retry"] = asdict(policy)
            if transition.outage is not None:
                fields["outage"] = transition.outage
                if breaker is not None:
                    fields["breaker"] = _breaker_fields(breaker)
            return fields


def _breaker_fields(breaker: Breaker) -> dict[str, Any]:
    """What the server needs of it: what counts as an outage is known here."""
    return {name: getattr(breaker, name) for name in ("failures", "probe_first", "probe_cap")}


def split_calls(items: Sequence[str]) -> list[list[str]]:
    """In pieces that one call may carry."""
    found: list[list[str]] = []
    size = 0
    for item in items:
        size += len(item) + 1
        if not found or size > MAX_CALL_BYTES or len(found[-1]) >= MAX_REPORTS:
            found.append([])
            size = len(item)
        found[-1].append(item)
    return found


def late_batches(records: Iterable[SpoolRecord]) -> Iterator[tuple[list[str], int]]:
    """What dead workers left, in bites, and where each ends; never all of it in memory."""
    items: list[str] = []
    size = end = 0
    for record in records:
        if items and (len(items) == MAX_REPORTS or size + len(record.data) > MAX_CALL_BYTES):
            yield items, end
            items, size = [], 0
        items.append(encode_json({**json.loads(record.data), "late": True}))
        size, end = size + len(record.data), record.end
    if items:
        yield items, end


def encode_call(reporter: Sequence[str], ahead: int = 0) -> str:
    more = f',"ahead":{ahead}' if ahead else ""
    return f'{{"reports":[{",".join(reporter)}]{more}}}'


def encode_renewal(token: str) -> str:
    return f'{{"do":"renew","token":{_quoted(token)}}}'


encode_json = json.JSONEncoder(separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring_ascii
