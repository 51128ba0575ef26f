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
from .spool import Record

PATH = "/api/v1/tasks/reports"
MOST = 1000  # reports in one call
MOST_BYTES = 1_000_000  # of one call, unless a single report is larger
HOW = {
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "timed-out",
    Outcome.PERMANENT: "permanent",
    Outcome.UNDECODABLE: "undecodable",
    Outcome.POSTPONED: "later",
    Outcome.CANCELLED: "cancelled",
}


def outcome(
    token: str, transition: Transition, policy: Retry | None, breaker: Breaker | None = None
) -> str:
    """How an attempt ended. Most succeed and add nothing, and these are spelled in no time."""
    if transition.trace is not None and transition.outcome is not Outcome.RELEASED:
        told = _ended(transition, policy, breaker)
        return spelled({"token": token, **told, "trace": transition.trace})
    if transition.outcome is Outcome.SUCCEEDED and not transition.jobs:
        result = "null" if transition.result is None else _quoted(transition.result)
        return f'{{"do":"complete","token":{_quoted(token)},"result":{result}}}'
    return spelled({"token": token, **_ended(transition, policy, breaker)})


def _ended(transition: Transition, policy: Retry | None, breaker: Breaker | None) -> dict[str, Any]:
    match transition.outcome:
        case Outcome.SUCCEEDED:
            jobs = [asdict(job) for job in transition.jobs]
            return {"do": "complete", "result": transition.result, "jobs": jobs}
        case Outcome.RELEASED:
            why = {"error": transition.error} if transition.error else {}
            return {"do": "release", "delay": transition.delay, **why}
        case how:
            told: dict[str, Any] = {"do": "fail", "how": HOW[how], "error": transition.error}
            if how is Outcome.POSTPONED:
                told["delay"] = transition.delay
            elif transition.wish is not None:  # the server knows the policy, and not this
                told["delay"] = transition.wish
            if policy is not None:
                told["retry"] = asdict(policy)
            if transition.outage is not None:
                told["outage"] = transition.outage
                if breaker is not None:
                    told["breaker"] = _terms(breaker)
            return told


def _terms(breaker: Breaker) -> dict[str, Any]:
    """What the server needs of it: what counts as an outage is known here."""
    return {name: getattr(breaker, name) for name in ("failures", "probe_first", "probe_cap")}


def parts(items: Sequence[str]) -> list[list[str]]:
    """In pieces that one call may carry."""
    found: list[list[str]] = []
    size = 0
    for item in items:
        size += len(item) + 1
        if not found or size > MOST_BYTES or len(found[-1]) >= MOST:
            found.append([])
            size = len(item)
        found[-1].append(item)
    return found


def late(records: Iterable[Record]) -> Iterator[tuple[list[str], int]]:
    """What dead workers left, in bites, and where each ends; never all of it in memory."""
    said: list[str] = []
    size = end = 0
    for record in records:
        if said and (len(said) == MOST or size + len(record.data) > MOST_BYTES):
            yield said, end
            said, size = [], 0
        said.append(spelled({**json.loads(record.data), "late": True}))
        size, end = size + len(record.data), record.end
    if said:
        yield said, end


def call(reports: Sequence[str], ahead: int = 0) -> str:
    more = f',"ahead":{ahead}' if ahead else ""
    return f'{{"reports":[{",".join(reports)}]{more}}}'


def renewal(token: str) -> str:
    return f'{{"do":"renew","token":{_quoted(token)}}}'


spelled = json.JSONEncoder(separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring_ascii
