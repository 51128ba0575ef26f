"""Models of reports and their responses, and the conversion of a report to an attempt's end."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...model.arguments import MAX_PAYLOAD
from ...model.blob import escape_reference
from ...model.breaker import MAX_FAILURES, MAX_PROBE_WAIT_S, Outage
from ...model.claim import Claim
from ...model.errors import InvalidInput
from ...model.lifecycle import Outcome
from ...model.outcome import AttemptEnd
from ...model.retry import MAX_DELAY_S
from ...model.safe_text import MESSAGE_LIMIT, TRACEBACK_LIMIT, storable_text
from ...ops.access import Access
from ...protocol import MAX_CREDIT, MAX_EVENT_LENGTH, MAX_REPORTS, OUTCOME_OF_WORD, Status
from . import followups, task_tokens

Token = Annotated[str, Field(max_length=task_tokens.MAX_TOKEN_LENGTH)]
Seconds = Annotated[float, Field(ge=0, le=MAX_DELAY_S)]


class ClosedModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReportedFailure(ClosedModel):
    type: str = ""
    message: str = ""
    traceback: str = ""

    def stored(self) -> dict[str, str]:
        return {
            "type": storable_text(self.type, MESSAGE_LIMIT),
            "message": storable_text(self.message, MESSAGE_LIMIT),
            "traceback": storable_text(self.traceback, TRACEBACK_LIMIT),
        }


class Policy(ClosedModel):
    max_attempts: int = Field(5, ge=1, le=1_000_000)
    base: Seconds = 1.0
    cap: Seconds = 300.0
    jitter: float = Field(0.2, ge=0, le=1)


class BreakerTerms(ClosedModel):
    failures: int = Field(5, ge=1, le=MAX_FAILURES)
    probe_first: float = Field(1.0, gt=0, le=MAX_PROBE_WAIT_S)
    probe_cap: float = Field(30.0, gt=0, le=MAX_PROBE_WAIT_S)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.probe_cap < self.probe_first:
            raise ValueError("probe_cap must be at least probe_first")
        return self


class TaskReport(ClosedModel):
    """One report about one job."""

    do: Literal["renew", "complete", "fail", "release", "event"]
    token: Token = Field(description="the job's task token, from the offer")
    result: str | None = Field(None, max_length=MAX_PAYLOAD, description="complete: as JSON text")
    jobs: list[dict[str, Any]] | None = Field(
        None, max_length=1000, description="complete: follow-up jobs"
    )
    error: ReportedFailure | None = Field(None, description="fail, release: the error")
    how: Literal[*OUTCOME_OF_WORD] = Field("failed", description="fail: the kind of failure")  # type: ignore[valid-type]
    delay: Seconds | None = Field(
        None, description="release, fail later: seconds until it is due; failed: the minimum"
    )
    retry: Policy | None = Field(
        None, description="fail: retry policy, if the job has none of its own"
    )
    outage: Outage | None = Field(
        None, description="fail: a dependency of the task is down, certainly or possibly"
    )
    breaker: BreakerTerms | None = Field(
        None, description="fail: settings of the task's circuit breaker"
    )
    trace: str | None = Field(
        None, max_length=55, description="complete, fail: the span of the attempt, as traceparent"
    )
    n: int = Field(0, ge=0, lt=2**63, description="event: its number under this claim")
    kind: Literal["progress", "log", "stream"] = Field("log", description="event: its kind")
    data: str = Field(
        "{}",
        max_length=MAX_EVENT_LENGTH,
        description="event: as JSON text; of a stream an array of chunks",
    )
    late: bool = Field(False, description="event: its worker died before it could send it")


class TaskReports(ClosedModel):
    reports: list[TaskReport] = Field(max_length=MAX_REPORTS)
    ahead: int = Field(
        0, ge=0, le=MAX_CREDIT, description="additional jobs beyond `credit` to offer now"
    )


class ReportAnswer(BaseModel):
    """`ok`; `duplicate`: already reported and stored; `lost`: the worker no longer owns this claim,
    and nothing was changed; `busy`: report again soon; `refused`: permanently, with the reason."""

    status: Status
    cancel: bool = False  # the job was asked to stop
    reason: str | None = None
    locked: bool = Field(
        False, description="renew, busy: a lock keeps every worker from claiming this job"
    )


class ReportAnswers(BaseModel):
    reports: list[ReportAnswer]


def attempt_end_of(report: TaskReport, claim: Claim, reach: Access) -> AttemptEnd:
    """The end of an attempt, from its report."""
    match report.do:
        case "complete":
            result = report.result
            if result is not None:
                check_json("result", result)
                result = escape_reference(result)  # a remote worker has no blob references
            jobs = followups.read_followups(report.jobs, claim, reach) if report.jobs else ()
            return AttemptEnd(Outcome.SUCCEEDED, result=result, jobs=jobs)
        case "release":
            why = None if report.error is None else report.error.stored()
            return AttemptEnd(Outcome.RELEASED, delay=report.delay, error=why)
        case _:
            error = (report.error or ReportedFailure()).stored()
            how = OUTCOME_OF_WORD[report.how]
            return AttemptEnd(how, error=error, delay=report.delay, outage=report.outage)


def check_json(what: str, text: str) -> None:
    """Check that text is JSON: the database and later readers parse it."""
    try:
        _decode(text)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{what} is not JSON text") from None
    if "\\u0000" in text:
        raise InvalidInput(f"{what} contains NUL, which the database cannot store")


def _refuse_constant(constant: str) -> None:
    raise ValueError(constant)


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
