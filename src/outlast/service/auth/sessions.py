"""Browser sessions: a session begins with a token, and ends no later than it.

The cookie is random and signed; the database has its hash, its token and its expiry. Logging out
deletes that row, so that a copy of the cookie is invalid, too. A cookie with a wrong signature is
refused without a query.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ...model.api_token import token_hash
from ...model.ids import entropy
from ...ops import sessions

if TYPE_CHECKING:
    from ..components import Service

COOKIE = "outlast_session"
HOST_COOKIE = f"__Host-{COOKIE}"  # browsers accept it over https only, and for this host alone
MAX_COOKIE_LENGTH = 200  # longer cookies are ignored


class Sessions:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def begin(self, request: Request, response: Response, token: str) -> None:
        life = self._service.settings.session_life
        secret = _encoded(entropy(32))
        await self._service.ol.store.arun(sessions.begin, token_hash(secret), token, life)
        value = f"{secret}.{await self._signature(secret)}"
        response.set_cookie(value=value, max_age=int(life), **_cookie_scope(request))

    async def end(self, request: Request, response: Response) -> None:
        """End a session, here at once, on other instances within two seconds."""
        if (session := await self.session_of(request)) is not None:
            await self._service.ol.store.arun(sessions.end, session)
            self._service.principals.forget(session)
        response.delete_cookie(**_cookie_scope(request))

    def has_cookie(self, request: Request) -> bool:
        """Whether there is a session cookie."""
        return _name(request) in request.cookies

    async def session_of(self, request: Request) -> str | None:
        """The hash of the session in a validly signed cookie."""
        cookie = request.cookies.get(_name(request), "")
        secret, _, signature = cookie[:MAX_COOKIE_LENGTH].partition(".")
        if not signature.isascii():
            return None
        good = hmac.compare_digest(await self._signature(secret), signature)
        return token_hash(secret) if good else None

    async def _signature(self, secret: str) -> str:
        key = await self._service.key("session")
        content = secret.encode("utf-8", "replace")
        return _encoded(hmac.new(key, content, hashlib.sha256).digest())


def _cookie_scope(request: Request) -> dict[str, Any]:
    return {
        "key": _name(request),
        "path": "/",
        "secure": _is_https(request),
        "httponly": True,
        "samesite": "strict",
    }


def _name(request: Request) -> str:
    """The cookie name, one for each mount: services on one host have separate sessions. (The prefix
    `__Host-` does not allow a path.)"""
    name = HOST_COOKIE if _is_https(request) else COOKIE
    prefix = request.scope.get("root_path", "")
    return f"{name}_{hashlib.sha256(prefix.encode()).hexdigest()[:8]}" if prefix else name


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
