"""What stands before every route: headers on every answer, and hosts and origins that are ours.

While there is no token, a web page that somebody visits must not reach the service through the
browser on the same machine: neither by a name of its own that it points here (the Host header
tells) nor by a form or script (the Origin header tells). A browser's session is guarded by its
origin too.
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
# What proxies say of those they ask for; and whatever else begins with x-forwarded-.
PROXY_HEADERS = {
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
}


# Headers that say one thing: where they come twice, two readers could understand two things.
SINGLE_HEADERS = frozenset((
    b"host", b"authorization", b"content-length", b"content-type", b"transfer-encoding", b"origin",
    b"sec-fetch-site", b"idempotency-key", b"last-event-id",
))  # fmt: skip
_HOST = re.compile(rb"(\[[0-9A-Za-z:.%_-]+\]|[\w.~%!$&'()*+,;=-]*)(:[0-9]{0,5})?", re.ASCII)


def refuse_ambiguous(scope: Scope) -> None:
    """A request that a proxy before us may understand in another way than we do."""
    seen = set[bytes]()
    host: bytes | None = None
    for name, value in scope["headers"]:
        if name in SINGLE_HEADERS:
            if name in seen:
                raise BadRequest(f"the header {name.decode()} is given twice")
            seen.add(name)
            if name == b"host":
                host = value
    if host is None:
        if scope.get("http_version") == "1.1":
            raise BadRequest("the header host is missing")
    elif not _HOST.fullmatch(host):
        raise BadRequest("the header host is not a name with an optional port")


class AmbiguityGuard:
    """Refuses requests with headers that contradict each other, before anything is made of them."""

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
    """Puts the headers on every answer that does not have its own."""

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
    """From this machine, under a name of this machine, and not passed on for somebody else."""
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
    """A change that a browser asks for has to come from a page of ours. Programs send no origin;
    a browser with a session always does, so then it `must_tell`."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in {"same-origin", "none"}:
        raise Forbidden("this call comes from another site")
    origin = request.headers.get("origin")
    if origin is None:
        if required and site != "same-origin":
            raise Forbidden("this call does not say which page it comes from (Origin)")
        return
    parsed = urlsplit(origin)
    # A page that came over http may be anybody's. The other way round is a proxy that speaks TLS.
    unsafe = request.url.scheme == "https" and parsed.scheme != "https"
    if unsafe or parsed.netloc.lower() != request.headers.get("host", "").lower():
        raise Forbidden("this call comes from another origin")


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
