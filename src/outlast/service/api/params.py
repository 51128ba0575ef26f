"""Parameters of requests, in canonical form."""

from __future__ import annotations

from typing import Any

from ...client.base import job_id
from ...client.flows import flow_id
from ...ops.search import JobQuery
from ..problems import UnprocessableBody
from ..request import RequestContext


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
