"""The server that runs the app: uvicorn, with bounds on connections that uvicorn lacks.

It closes connections that do not send a whole request in time, keeps their number below the limit
of open files, refuses request heads that are too long or ambiguous, can cut the connection of a
client that does not read, and ends streams before it waits for connections to close.
"""

from __future__ import annotations

import logging
import socket
import time
from asyncio import BaseTransport
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .connections import MAX_STALL_S, Connections, connection_limit
from .streaming import HANG_UP

if TYPE_CHECKING:
    from ..model.errors import StoreError
    from ..model.settings import ServiceSettings
    from .app import ServiceApp
    from .databases import DatabasesApp

MAX_HEAD_BYTES = 65_536  # bytes of request line and headers
ACCEPT_BATCH = 16  # connections accepted before the previous ones are counted
BACKLOG = 2048  # connections that the kernel queues
LOG_INTERVAL_S = 60.0
EVICTABLE_STALL_S = 5.0  # without progress of a write; then it may be closed for new connections

_log = logging.getLogger("outlast.service.http")


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Uses these names of uvicorn's class: `transport`, `client`, `cycle` (with
    `response_complete` and `more_body`), `flow.write_paused`, `url`, `headers`, `app`, `logger` and
    the parser's callbacks; pyproject.toml bounds uvicorn's version, and a test looks for them."""

    app: ASGIApp

    def __init__(
        self, *args: Any, connections: Connections, timeouts: ConnectionTimeouts, **options: Any
    ):
        super().__init__(*args, **options)
        self.logger = _log
        self._connections = connections
        self._timeouts = timeouts
        self._since = time.monotonic()
        self._unsent = 0  # pending bytes, when they last decreased
        self._unsent_since = 0.0
        self._in_head = False
        self._head_size = 0

    # Interface for the registry of connections

    @property
    def address(self) -> str:
        return self.client[0] if self.client else "unknown"

    @property
    def pending_since(self) -> float | None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return self._since
        if self.flow.write_paused and time.monotonic() - self._unsent_since > EVICTABLE_STALL_S:
            return self._unsent_since
        return None

    @property
    def allowed_s(self) -> float:
        if self._unsent or not self._owes_head:  # the reader of a body has a time limit of its own
            return self._timeouts.stalled
        return self._timeouts.head

    @property
    def _owes_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def note_progress(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, time.monotonic()
            if self._owes_head:
                self._since = self._unsent_since

    def cut(self) -> None:
        self.transport.abort()

    # Interface for uvicorn and its parser

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.app = _with_hang_up(self.app, transport)
        if not self._connections.add(self):
            self._refuse(503, "Service Unavailable", "retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_size += len(data)
        super().data_received(data)
        if self._in_head and self._head_size > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, "Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_size = True, 0
        if self.cycle is not None:  # the time of the first request began with the connection
            self._since = time.monotonic()

    def on_headers_complete(self) -> None:
        self._in_head = False
        _refuse_other_authority(self.url, self.headers)
        super().on_headers_complete()
        self._since = time.monotonic()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = time.monotonic()

    def pause_writing(self) -> None:
        self._unsent_since = time.monotonic()
        super().pause_writing()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: otherwise any client could fill the log."""

    def _refuse(self, status: int, phrase: str, headers: str = "") -> None:
        head = f"HTTP/1.1 {status} {phrase}\r\n{headers}content-length: 0\r\nconnection: close\r\n"
        self.transport.write(f"{head}\r\n".encode())
        self.transport.close()


class ConnectionTimeouts:
    """Seconds that a connection may take to send a request's head, and to read any of the response
    (never less than streams allow)."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.head = settings.header_timeout
        self.stalled = max(MAX_STALL_S, settings.events_stall, settings.offer_lease)


class RateLimitedLog(logging.Filter):
    """Passes messages that any client can cause at most once a minute."""

    def __init__(self, *messages: str) -> None:
        super().__init__()
        self._last = dict.fromkeys(messages, -LOG_INTERVAL_S)

    def filter(self, record: logging.LogRecord) -> bool:
        last = self._last.get(str(record.msg))
        if last is None:
            return True
        if (now := time.monotonic()) - last < LOG_INTERVAL_S:
            return False
        self._last[str(record.msg)] = now
        return True


_log.addFilter(RateLimitedLog("Invalid HTTP request received."))


def _refuse_other_authority(url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse a request for `http://name/path` with another name in the Host header: uvicorn passes
    only the path to the app, so the header would be trusted. The parser responds 400 to an
    exception."""
    if url[:1] == b"/":
        return
    named = urlsplit(url).netloc.lower()
    hosts = [value.lower() for name, value in headers if name == b"host"]
    if named and hosts != [named]:
        raise ValueError("the request's target and its Host header differ")


def _with_hang_up(app: ASGIApp, transport: Any) -> ASGIApp:
    async def knowing(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {**scope.get("extensions", {}), HANG_UP: transport.abort}
        await app(scope, receive, send)

    return knowing


class BoundedServer(uvicorn.Server):
    def __init__(self, app: ServiceApp | DatabasesApp, **settings: Any) -> None:
        self._services = app.parts
        self.unusable: StoreError | None = None  # the database that ended the server
        chosen = self._services[0].settings
        self.open = Connections(connection_limit(chosen))
        protocols: Any = _protocol_factory(self.open, ConnectionTimeouts(chosen))
        super().__init__(uvicorn.Config(app, http=protocols, backlog=ACCEPT_BATCH, **settings))
        if len(self._services) == 1:  # with several databases, the server continues
            self._services[0].runner.on_unusable = self._end

    def _end(self) -> None:
        self.unusable = self._services[0].runner.unusable
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start with different values of `backlog` for two limits: the connections that asyncio
        accepts at once (few: they are counted only afterwards), and those that the kernel queues
        (many)."""
        await super().startup(sockets)
        for server in getattr(self, "servers", ()):
            for listening in server.sockets:
                with listening.dup() as same:
                    same.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End open streams first: the server waits until all connections are closed."""
        for service in self._services:
            service.close_streams()
        await super().shutdown(sockets)
        self.open.close()


def _protocol_factory(
    connections: Connections, timeouts: ConnectionTimeouts
) -> Callable[..., BoundedProtocol]:
    def made(**options: object) -> BoundedProtocol:
        return BoundedProtocol(connections=connections, timeouts=timeouts, **options)

    return made
