"""A small HTTP server for processes without another: /metrics, /livez and /readyz.

It runs in its own thread, with its own event loop and database connection, so that no scrape and no
slow reader delays a job. It accepts a few connections at a time, each for one short request. A
connection without a complete request is closed after a few seconds, or earlier to make room for the
next one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import suppress
from http import HTTPStatus

from ..model.errors import InvalidSetting
from .routes import MetricsRoutes, RawResponse, error_response
from .targets import Target

log = logging.getLogger("outlast.metrics")

MAX_CONNECTIONS = 16  # connections
MAX_REQUEST_BYTES = 8192  # bytes of a request
REQUEST_TIMEOUT_S = 5.0  # seconds for a client to send its request, and to read the response
PULSE_INTERVAL_S = 1.0  # seconds
ACCEPT_BATCH = 4  # connections accepted before earlier ones are counted
BACKLOG = 64  # connections queued by the kernel


class MetricsServer:
    def __init__(self, target: Target, host: str, port: int) -> None:
        """Binds the port and checks the exporter at once, so that errors show at start-up."""
        self._target = target
        self._store = target.store.clone(connections=1) if target.store else None
        self._routes = MetricsRoutes(target, self._store)
        self._socket = _listen(host, port)
        self._open = 0
        self._reading: dict[asyncio.StreamWriter, None] = {}  # no complete request; oldest first
        self._stopped: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="outlast-metrics", daemon=True)

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        log.info("metrics and health on %s", self.address)
        self._thread.start()

    def stop(self) -> None:
        if self._loop is not None and self._stopped is not None:
            with suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(REQUEST_TIMEOUT_S)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the metrics server has stopped")

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._handle, sock=self._socket, limit=MAX_REQUEST_BYTES, backlog=ACCEPT_BATCH
        )
        self._socket.listen(BACKLOG)
        try:
            while not self._stopped.is_set():
                self._target.pulse()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PULSE_INTERVAL_S):
                        await self._stopped.wait()
        finally:
            server.close()
            await self._routes.aclose()
            if self._store is not None:
                await self._store.aclose()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self._reading[writer] = None
        if self._open > MAX_CONNECTIONS and len(self._reading) > 1:
            self._drop(next(iter(self._reading)))
        writer.transport.set_write_buffer_limits(high=0)  # drained data has been sent
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response, head = await self._respond(reader, writer)
            writer.write(_encode(response, head))
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            log.debug("a connection failed: %s", type(error).__name__)
        except Exception:
            log.exception("a request failed")
            writer.write(_encode(error_response(HTTPStatus.INTERNAL_SERVER_ERROR), False))
        finally:
            self._open -= 1
            self._reading.pop(writer, None)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        """Make room by closing a connection that has not sent its request."""
        del self._reading[writer]
        writer.transport.abort()  # its reader gets an error

    async def _respond(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[RawResponse, bool]:
        if self._open > 2 * MAX_CONNECTIONS:  # dropped connections may still be open
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE), False
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self._reading.pop(writer, None)
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return error_response(HTTPStatus.METHOD_NOT_ALLOWED), False
        return await self._routes.respond(path, _header(lines, "accept")), method == "HEAD"


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=64)
    except (OSError, OverflowError) as error:
        raise InvalidSetting(
            field="metrics_port", reason=f"cannot be bound: {host}, port {port}: {error}"
        ) from None


def _header(lines: list[str], name: str) -> str:
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""


def _encode(response: RawResponse, head: bool) -> bytes:
    status, content_type, body = response
    lines = (
        f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (b"" if head else body)
