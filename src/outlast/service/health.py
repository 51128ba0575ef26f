"""Metrics and health checks. Health is public, and reveals nothing else."""

from __future__ import annotations

from starlette.responses import Response

from ..model.api_token import Scope
from .problems import Forbidden
from .request import RequestContext
from .route import PUBLIC, Route


async def metrics(call: RequestContext) -> Response:
    if call.who.queues is not None:
        raise Forbidden("this concerns all queues: use a token that is not restricted to some")
    return await _respond(call)


async def livez(call: RequestContext) -> Response:
    return await _respond(call)


async def readyz(call: RequestContext) -> Response:
    return await _respond(call)


async def _respond(call: RequestContext) -> Response:
    accept = call.request.headers.get("accept", "")
    status, content_type, body = await call.service.metrics_routes.respond(call.route.path, accept)
    return Response(body, status, {"content-type": content_type, "cache-control": "no-store"})


PLAIN = ("text/plain",)
PROMETHEUS = (*PLAIN, "application/openmetrics-text")

ROUTES = (
    Route("GET", "/metrics", Scope.READ, metrics, "Metrics for Prometheus",
          everyone=True, media=PROMETHEUS),
    Route("GET", "/livez", PUBLIC, livez, "Whether this process is alive", media=PLAIN),
    Route("GET", "/readyz", PUBLIC, readyz, "Whether its dependencies are available", media=PLAIN,
          statuses=(503,)),
)  # fmt: skip
