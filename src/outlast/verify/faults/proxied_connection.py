"""One connection through the proxy: a client, the server, and the two threads between them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .proxy import Proxy

Upstream = tuple[str, int] | str | Path

CHUNK_BYTES = 65536


class ProxiedConnection:
    """One client, its connection to the server, and the two threads between them."""

    def __init__(
        self, proxy: Proxy, client: socket.socket, server: socket.socket, number: int
    ) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.number = number
        for peer in (client, server):
            if peer.family != socket.AF_UNIX:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._open_directions = 2

    def start(self) -> None:
        for direction in (self._requests, self._replies):
            threading.Thread(target=self._run, args=(direction,), daemon=True).start()

    def reset(self) -> None:
        reset(self.client)
        reset(self.server)
        self.proxy.forget(self)

    def side_lost(self) -> None:
        """Close the other side after one has closed."""
        self.reset()

    def _run(self, direction: Callable[[], None]) -> None:
        try:
            direction()
        except OSError:
            self.proxy.wait_until_open()
            self.side_lost()
        with self._lock:
            self._open_directions -= 1
            last = self._open_directions == 0
        if last:
            self.client.close()
            self.server.close()
            self.proxy.forget(self)

    def _requests(self) -> None:
        while data := self.client.recv(CHUNK_BYTES):
            if not self.forward_request(data):
                return
        self.proxy.forward(self.server, b"")

    def _replies(self) -> None:
        while data := self.server.recv(CHUNK_BYTES):
            if not self.forward_reply(data):
                return
        self.proxy.forward(self.client, b"")

    def forward_request(self, data: bytes) -> bool:
        return self._forward(self.server, data, answer=False)

    def forward_reply(self, data: bytes) -> bool:
        return self._forward(self.client, data, answer=True)

    def _forward(self, target: socket.socket, data: bytes, *, answer: bool) -> bool:
        """Forward the part that the inspector passes; False if the connection is then reset."""
        passing = self.proxy.inspect(self.number, data, answer)
        if passing:
            self.proxy.forward(target, passing)
        if len(passing) < len(data):
            self.reset()
            return False
        return True


def dial(upstream: Upstream) -> socket.socket:
    if isinstance(upstream, tuple):
        return socket.create_connection(upstream, timeout=None)
    server = socket.socket(socket.AF_UNIX)
    server.connect(str(upstream))
    return server


def reset(peer: socket.socket) -> None:
    """Close with RST instead of FIN, and wake the thread that reads from it."""
    with suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        peer.shutdown(socket.SHUT_RD)
    peer.close()
