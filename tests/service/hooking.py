"""Senders of webhooks: each signs a body in its own way, as its documentation says.

As a program: a service that gets them, and kills itself at the point that POINT names.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from typing import Any

from outlast import Outlast
from outlast.bridges import Http
from outlast.service import service
from outlast.service.server import BoundedServer
from tests.support.points import arm

STANDARD_SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
TEXT_SECRET = "whsec_that-nobody-else-knows"
SECRETS = {"standard": STANDARD_SECRET, "github": TEXT_SECRET, "stripe": TEXT_SECRET}


def signed(
    style: str, id: str, body: bytes, secret: str | None = None, age: float = 0.0
) -> dict[str, str]:
    """The headers of a request that was signed `age` seconds ago."""
    secret, at = secret or SECRETS[style], int(time.time() - age)
    if style == "standard":
        key = base64.b64decode(secret.removeprefix("whsec_"))
        digest = hmac.digest(key, f"{id}.{at}.".encode() + body, hashlib.sha256)
        signature = f"v1,{base64.b64encode(digest).decode()}"
        return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}
    if style == "github":
        digest = hmac.digest(secret.encode(), body, hashlib.sha256)
        return {
            "x-hub-signature-256": f"sha256={digest.hex()}",
            "x-github-delivery": id,
            "x-github-event": "push",
        }
    digest = hmac.digest(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return {"stripe-signature": f"t={at},v0={'0' * 64},v1={digest.hex()}"}


def body_of(id: str, n: int = 1) -> bytes:
    """Stripe's id of a message is in its body."""
    return json.dumps({"id": id, "n": n}).encode()


def _serve() -> None:
    """A service that kills itself at a point."""
    ol = Outlast()

    @ol.task
    async def pay(body: dict[str, Any]) -> None: ...

    ol.source("pay", Http("stripe", secret=TEXT_SECRET), task=pay)
    arm(os.environ["POINT"])
    BoundedServer(service(ol), host="127.0.0.1", port=0, log_level="info").run()


if __name__ == "__main__":
    _serve()
