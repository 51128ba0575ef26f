"""Parameters of requests, in canonical form."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from ...client.flows import flow_id
from ...client.verb_arguments import job_id
from ...ops.search import JobQuery
from ..problems import UnprocessableBody
from ..request import RequestContext

IDEMPOTENCY_HEADER = "idempotency-key"
MAX_KEY_LENGTH = 150


def job_id_of(call: RequestContext) -> str:
    """The job id in the path."""
    return job_id(call.request.path_params["id"])


def flow_id_of(call: RequestContext) -> str:
    return flow_id(call.request.path_params["id"])


def filter_of(params: Any) -> JobQuery:
    """The filter of a query or a body."""
    return JobQuery(params.state and str(params.state), params.queue, params.task)


def limit_of(requested: int | None, default: int, allowed: int) -> int:
    """The requested limit, if the server allows it; else the default."""
    return min(default, allowed) if requested is None else bounded(requested, allowed)


def bounded(requested: int, allowed: int, what: str = "limit") -> int:
    if requested > allowed:
        problem = {"path": what, "message": f"must be at most {allowed} on this server"}
        raise UnprocessableBody("the request is invalid", problems=[problem])
    return requested


def request_key(request: Request) -> str | None:
    """The key in the header of a request that may be repeated."""
    key = request.headers.get(IDEMPOTENCY_HEADER)
    if key is not None and (not 0 < len(key) <= MAX_KEY_LENGTH or not key.isprintable()):
        raise UnprocessableBody(
            f"Idempotency-Key must be 1 to {MAX_KEY_LENGTH} printable characters"
        )
    return key


def merged_key(header: str | None, own: str | None) -> str | None:
    """The key from the header, the body, or both if they are equal."""
    if None not in (own, header) and own != header:
        raise UnprocessableBody(
            f"Idempotency-Key is {header!r}, and `key` in the body is {own!r}: send one of them,"
            " or the same in both"
        )
    return own or header
