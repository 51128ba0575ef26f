"""Browsers: a session begins with a token, and lives no longer than it.

The cookie holds the token's id, when the session ends and a signature; nothing that helps whoever
finds it in a log after that moment. Revoking the token ends every session that began with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from ..model.ids import entropy

if TYPE_CHECKING:
    from .state import Service

COOKIE = "outlast_session"
HOST_COOKIE = f"__Host-{COOKIE}"  # a browser takes it over https only, and for this host alone
VERSION = "v1"
LONGEST_COOKIE = 1000


class Sessions:
    def __init__(self, service: Service) -> None:
        self._service = service

    def cookie_of(self, request: Request) -> str | None:
        return request.cookies.get(HOST_COOKIE if _is_https(request) else COOKIE)

    async def begin(self, request: Request, response: Response, token: str) -> None:
        life = self._service.settings.session_life
        ends = await self._service.principals.now() + life
        said = {"token": token, "ends": ends, "nonce": entropy(8).hex()}
        payload = _encoded(json.dumps(said).encode())
        value = f"{VERSION}.{payload}.{await self._signature(payload)}"
        response.set_cookie(value=value, max_age=int(life), **self._place(request))

    def end(self, request: Request, response: Response) -> None:
        response.delete_cookie(**self._place(request))

    async def token_of(self, cookie: str) -> str | None:
        """The id of the token that a session began with, unless it is over or was tampered with."""
        version, _, rest = cookie[:LONGEST_COOKIE].partition(".")
        payload, _, signature = rest.partition(".")
        if version != VERSION or not signature.isascii():
            return None
        if not hmac.compare_digest(await self._signature(payload), signature):
            return None
        said = _decoded(payload)
        if said is None or await self._service.principals.now() >= said["ends"]:
            return None
        return str(UUID(said["token"]))

    async def _signature(self, payload: str) -> str:
        key = await self._service.key("session")
        made = hmac.new(key, f"{VERSION}.{payload}".encode("utf-8", "replace"), hashlib.sha256)
        return _encoded(made.digest())

    def _place(self, request: Request) -> dict[str, Any]:
        https = _is_https(request)
        return {
            "key": HOST_COOKIE if https else COOKIE,
            "path": "/",
            "secure": https,
            "httponly": True,
            "samesite": "strict",
        }


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> dict[str, Any] | None:
    try:
        said = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error):
        return None
    return said if isinstance(said, dict) else None
