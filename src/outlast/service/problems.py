"""Errors as application/problem+json: type, title, status, a sentence, and facts.

They contain no traceback, database address or secret. An unexpected error is a 500 with only an
incident id, under which the log has the details.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from ..model import errors
from ..model.ids import new_instance_id
from ..worker.logs import redact

log = logging.getLogger("outlast.service")

MEDIA = "application/problem+json"
MAX_PROBLEMS = 100


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="the kind of problem")
    title: str
    status: int
    detail: str = Field(description="what is wrong, and what to do")
    problems: list[dict[str, str]] | None = Field(
        None, description="every problem of the request: path and message"
    )
    job: str | None = Field(None, description="the job concerned")
    flow: str | None = Field(None, description="the flow concerned")
    incident: str | None = Field(None, description="id of the incident in the server's log")


class RequestRefused(Exception):
    """A request that cannot be served, with its response."""

    status = 400
    kind: str | None = None

    def __init__(
        self, detail: str, headers: Mapping[str, str] | None = None, **facts: object
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers = dict(headers or {})
        self.facts = facts


class BadRequest(RequestRefused):
    """The request cannot be parsed."""


class Unauthorised(RequestRefused):
    status = 401

    def __init__(self, detail: str) -> None:
        super().__init__(detail, {"www-authenticate": 'Bearer realm="outlast"'})


class Forbidden(RequestRefused):
    status = 403


class NotFound(RequestRefused):
    status = 404


class MethodNotAllowed(RequestRefused):
    status = 405


class Conflict(RequestRefused):
    status = 409


class PayloadTooLarge(RequestRefused):
    status = 413


class UnsupportedMediaType(RequestRefused):
    status = 415


class UnprocessableBody(RequestRefused):
    status = 422


class Throttled(RequestRefused):
    status = 429

    def __init__(
        self, wait: float, detail: str = "too many wrong tokens from this address"
    ) -> None:
        seconds = max(1, math.ceil(wait))
        super().__init__(f"{detail}: wait {seconds} s", {"retry-after": str(seconds)})


class Unavailable(RequestRefused):
    status = 503

    def __init__(self, detail: str, wait: float = 1.0) -> None:
        super().__init__(detail, {"retry-after": str(max(1, math.ceil(wait)))})


STATUSES: dict[type[Exception], int] = {
    errors.InvalidInput: 422,
    errors.UnknownTask: 422,
    errors.JobNotFound: 404,
    errors.FlowNotFound: 404,
    errors.TokenNotFound: 404,
    errors.LinkRefused: 410,
    errors.WorkerNotFound: 404,
    errors.ScheduleNotFound: 404,
    errors.ScheduleExists: 409,
    errors.KeyConflict: 409,
    errors.QueueFull: 429,
    errors.QuotaExceeded: 429,
    errors.TooLate: 409,
    errors.TooEarly: 409,
    errors.FlowClosed: 409,
    errors.PrerequisiteFailed: 409,
    errors.ClaimLost: 409,
    errors.Erased: 410,
    errors.BlobLost: 410,
    errors.BlobError: 503,
    errors.StoreError: 503,
}


def problem_response(error: Exception) -> Response:
    """The response to a failed request."""
    if isinstance(error, RequestRefused):
        kind = error.kind or _kind(type(error))
        return problem(error.status, kind, error.detail, error.headers, **error.facts)
    for expected, status in STATUSES.items():
        if isinstance(error, expected):
            return _known_error(error, status)
    return _unexpected_error(error)


def problem(
    status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None, **facts: object
) -> Response:
    content = {
        "type": f"urn:outlast:{kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": redact(detail),
        **{name: value for name, value in facts.items() if value is not None},
    }
    return JSONResponse(content, status, headers, media_type=MEDIA)


def _known_error(error: Exception, status: int) -> Response:
    kind, facts, headers = _kind(type(error)), dict[str, Any](), dict[str, str]()
    detail = str(error)
    if isinstance(error, errors.StoreError):  # do not reveal how the database is reached
        log.warning("the database: %s", error)
        detail = "the database is unavailable: try again"
        headers["retry-after"] = "1"
    if isinstance(error, errors.QuotaExceeded) and error.asked <= error.allowed:
        wait = (error.resets_at - datetime.now(UTC)).total_seconds()
        headers["retry-after"] = str(max(1, math.ceil(wait)))
    found = getattr(error, "problems", None)
    if found:
        facts["problems"] = [
            {"path": redact(str(one.path)), "message": redact(one.message)}
            for one in found[:MAX_PROBLEMS]
        ]
    if isinstance(error, errors.OutlastError):
        for name in ("job", "flow"):
            if (about := error.facts.get(name)) is not None:
                facts[name] = str(about)[:100]
    return problem(status, kind, detail, headers, **facts)


def _unexpected_error(error: Exception) -> Response:
    incident = new_instance_id()
    log.error("incident %s", incident, exc_info=error)
    detail = "internal error; see the server's log"
    return problem(500, "internal", detail, incident=incident)


def _kind(error: type[Exception]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", error.__name__).lower()
