"""`POST /hooks/NAME`: the webhooks of a source. The signature is the credential."""

from __future__ import annotations

from .request import RequestContext
from .route import PUBLIC, Route

PATH = "/hooks/{name}"


async def receive_webhook(call: RequestContext) -> None:
    await call.service.hooks.receive(call.request.path_params["name"], call.request)


ROUTES = (
    Route("POST", PATH, PUBLIC, receive_webhook,
          "Store a signed webhook as a job of the source of this name, once", status=204,
          statuses=(400, 403, 404, 413, 429)),
)  # fmt: skip
