"""What a path or a body names, in its one spelling."""

from __future__ import annotations

from typing import Any

from ...connected import job_id
from ...flows import flow_id
from ...ops.search import Sought
from ..calls import Call
from ..problems import Invalid


def id_in(call: Call) -> str:
    """The job that the path names."""
    return job_id(call.request.path_params["id"])


def flow_in(call: Call) -> str:
    return flow_id(call.request.path_params["id"])


def sought_in(asked: Any) -> Sought:
    """The filter of a query or a body."""
    return Sought(asked.state and str(asked.state), asked.queue, asked.task)


def limit_of(asked: int | None, usual: int, allowed: int) -> int:
    """So many as were asked for, if that is allowed; else as many as usual."""
    return min(usual, allowed) if asked is None else at_most(asked, allowed)


def at_most(asked: int, allowed: int, what: str = "limit") -> int:
    if asked > allowed:
        problem = {"path": what, "message": f"must be at most {allowed} on this server"}
        raise Invalid("what was sent cannot be used", problems=[problem])
    return asked
