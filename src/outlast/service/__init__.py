"""The service: HTTP API, dashboard, event streams, remote workers. Needs `outlast[serve]`.

    from outlast.service import service
    app = service(ol)          # an ASGI app: run it with uvicorn, or mount it in yours
    app = services(databases)  # the same for several databases, with a page over all of them

In reading order, by what happens to a request:

    route          a line of the route table;  route_table  every path, its scope, its models
    app            the ASGI app built from the table;  databases  one app for several databases
    security       headers of every response; refused hosts and origins
    auth/          callers: a token, a browser's session, a local caller; throttle, revocation
    request        the context of an endpoint: service, caller, body
    api/           the endpoints;  health  metrics and health checks
    job_counts     counts of all jobs, cached
    streaming      server-sent events and JSON lines
    events/        streams of job events
    dequeue/       streams and reports of remote workers
    dashboard/     pages
    problems       errors as application/problem+json
    openapi        the description, generated from the table
"""

from __future__ import annotations

from .app import ServiceApp, service
from .auth.principals import Principal
from .components import Service
from .databases import DatabasesApp, services
from .request import RequestContext
from .route_table import PUBLIC, Route

__all__ = [
    "PUBLIC",
    "DatabasesApp",
    "Principal",
    "RequestContext",
    "Route",
    "Service",
    "ServiceApp",
    "service",
    "services",
]
