"""The service: the job system's face on the network. Needs the extra `outlast[serve]`.

    from outlast.service import service
    app = service(ol)          # an ASGI app: run it with uvicorn, or mount it in yours

In reading order, by what happens to a request:

    routes       the table: every path, who may call it, what goes in and what comes out
    app          the ASGI app made from it
    guards       headers on every answer; hosts and origins that are none of ours
    principals   who calls: a token, a browser's session, or somebody on this very machine
    once         what many ask at once is asked once;  census  so is the count of all jobs
    throttle     who guesses has to wait;  revocations  who was let in can be shown out
    calls        what an endpoint is given: the service, the caller, the body
    api/         the endpoints;  health  metrics, and whether all is well
    events/      what is told of jobs, as it comes
    problems     what goes wrong, as application/problem+json
    openapi      the description, made from the table
"""

from __future__ import annotations

from .app import ServiceApp, service
from .auth.principals import Principal
from .components import Service
from .request import RequestContext
from .route_table import PUBLIC, Route

__all__ = ["PUBLIC", "Principal", "RequestContext", "Route", "Service", "ServiceApp", "service"]
