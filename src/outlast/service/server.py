"""The server that runs the app: streams do not keep it from stopping, and it can hang up."""

from __future__ import annotations

import socket
from asyncio import BaseTransport
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .hanging_up import HANG_UP

if TYPE_CHECKING:
    from .app import ServiceApp


class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Tells whoever answers how to hang up. A connection that is only closed is kept until all that
    was written has been sent: on a client that takes nothing, for ever."""

    app: ASGIApp

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.app = _with_hang_up(self.app, transport)


def _with_hang_up(app: ASGIApp, transport: Any) -> ASGIApp:
    async def knowing(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {**scope.get("extensions", {}), HANG_UP: transport.abort}
        await app(scope, receive, send)

    return knowing


class Server(uvicorn.Server):
    def __init__(self, app: ServiceApp, **settings: Any) -> None:
        super().__init__(uvicorn.Config(app, http=Protocol, **settings))
        self._service = app.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Open streams are told first: the server waits until all connections are closed."""
        self._service.leave()
        await super().shutdown(sockets)
