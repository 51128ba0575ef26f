"""Metrics and health. Health is for anybody to ask, and says nothing that is not for anybody."""

from __future__ import annotations

from starlette.responses import Response

from ..model.tokens import Scope
from .calls import Call
from .problems import Forbidden
from .route import PUBLIC, Route


async def metrics(call: Call) -> Response:
    if call.who.queues is not None:
        raise Forbidden("this concerns all queues: it needs a token that is not for some alone")
    return await _answer(call)


async def livez(call: Call) -> Response:
    return await _answer(call)


async def readyz(call: Call) -> Response:
    return await _answer(call)


async def _answer(call: Call) -> Response:
    accept = call.request.headers.get("accept", "")
    status, content_type, body = await call.service.answers.answer(call.route.path, accept)
    return Response(body, status, {"content-type": content_type, "cache-control": "no-store"})


PLAIN = ("text/plain",)
PROMETHEUS = (*PLAIN, "application/openmetrics-text")

ROUTES = (
    Route("GET", "/metrics", Scope.READ, metrics, "Figures for Prometheus",
          everyone=True, media=PROMETHEUS),
    Route("GET", "/livez", PUBLIC, livez, "Whether this process is alive", media=PLAIN),
    Route("GET", "/readyz", PUBLIC, readyz, "Whether all that it needs is there", media=PLAIN,
          statuses=(503,)),
)  # fmt: skip
