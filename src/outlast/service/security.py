"""Checks before every route: response headers, and allowed hosts and origins.

While there is no token, a web page in a browser on the same machine must not reach the service:
neither by a host name that resolves to it (see the Host header) nor by a form or script (see the
Origin header). Browser sessions are protected by their origin, too.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import BadRequest, Forbidden, problem_response

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
# Headers that proxies add, besides any that begins with x-forwarded-.
PROXY_HEADERS = {
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
}


# Headers with one value: if repeated, two parsers could choose different ones.
SINGLE_HEADERS = frozenset((
    b"host", b"authorization", b"content-length", b"content-type", b"transfer-encoding", b"origin",
    b"sec-fetch-site", b"idempotency-key", b"last-event-id",
))  # fmt: skip
_HOST = re.compile(rb"(\[[0-9A-Za-z:.%_-]+\]|[\w.~%!$&'()*+,;=-]*)(:[0-9]{0,5})?", re.ASCII)


def refuse_ambiguous(scope: Scope) -> None:
    """Refuse a request that a proxy in front of the service may parse differently."""
    seen = set[bytes]()
    host: bytes | None = None
    for name, value in scope["headers"]:
        if name in SINGLE_HEADERS:
            if name in seen:
                raise BadRequest(f"the header {name.decode()} is repeated")
            seen.add(name)
            if name == b"host":
                host = value
    if host is None:
        if scope.get("http_version") == "1.1":
            raise BadRequest("the header host is missing")
    elif not _HOST.fullmatch(host):
        raise BadRequest("the header host is not a name with an optional port")


class AmbiguityGuard:
    """Refuses requests with contradictory headers, before anything else reads them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                refuse_ambiguous(scope)
            except BadRequest as refused:
                await problem_response(refused)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class SecurityHeaders:
    """Adds the headers to every response that does not set its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_safely if scope["type"] == "http" else send)


def is_local(request: Request) -> bool:
    """Whether a request is from this machine, under a name of this machine, and not forwarded."""
    if request.client is None or not is_loopback(request.client.host):
        return False
    if any(name in PROXY_HEADERS or name.startswith("x-forwarded-") for name in request.headers):
        return False
    return is_loopback(_host(request.headers.get("host", "")))


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_foreign_origin(request: Request, *, required: bool) -> None:
    """Refuse a change by a browser from another site. Programs send no origin; a browser with a
    session always sends one, so that it is `required`."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in {"same-origin", "none"}:
        raise Forbidden("this request comes from another site")
    origin = request.headers.get("origin")
    if origin is None:
        if required and site != "same-origin":
            raise Forbidden("this request has no Origin header")
        return
    parsed = urlsplit(origin)
    # A page served over http may be anyone's. The reverse is a proxy that terminates TLS.
    unsafe = request.url.scheme == "https" and parsed.scheme != "https"
    if unsafe or parsed.netloc.lower() != request.headers.get("host", "").lower():
        raise Forbidden("this request comes from another origin")


def _host(header: str) -> str:
    """The host name of a Host header, without the port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
