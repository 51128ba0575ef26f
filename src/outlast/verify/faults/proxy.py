"""A TCP proxy on loopback that injects network faults on demand.

    client ──▶ proxy ──▶ server        (two threads for each connection, one for each direction)

The effect of each switch for the client:

    cut()                   connection reset; the next connection works
    refuse() / accept()     connection reset at once, for old and new ones, until accept()
    freeze() / thaw()       silence: nothing arrives in either direction, without an error
    delay(seconds)          a slow connection: each direction takes that much longer

`inspect` is a function that receives every chunk and returns the part to forward.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import urlsplit, urlunsplit

from .proxied_connection import ProxiedConnection, Upstream, dial, reset

# The connection, a chunk, and whether the server sent it: returns the part to forward. If that is
# shorter, the connection is reset after it.
Inspector = Callable[[int, bytes, bool], bytes]


class Proxy:
    """Listens on `host:port` while the `with` block runs; `url(u)` is `u` through the proxy."""

    host = "127.0.0.1"
    connection_type: ClassVar[type[ProxiedConnection]] = ProxiedConnection

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self._gate = threading.Condition()
        self._frozen = False
        self._sending = 0
        self._refusing = False
        self._closed = False
        self._delay = 0.0
        self.inspect: Inspector = lambda line, data, answer: data
        self.accepted = 0  # connections that clients have opened, refused ones included
        self._connections: set[ProxiedConnection] = set()
        self._listener = socket.create_server((self.host, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, name="proxy", daemon=True)

    @classmethod
    def before(cls, url: str) -> Self:
        """A proxy in front of the server that a database URL names."""
        parts = urlsplit(url)
        if not (parts.hostname and parts.port):
            raise ValueError("the URL names no host and port")
        return cls((parts.hostname, parts.port))

    def url(self, url: str) -> str:
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        address = f"{self.host}:{self.port}"
        return urlunsplit(parts._replace(netloc=f"{user}@{address}" if user else address))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._gate:
            self._closed = True
            self._gate.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept()
        self._listener.close()
        self._thread.join(5)
        self.cut()

    # --- the switches

    def cut(self) -> None:
        """Reset every connection, on both sides."""
        for connection in self._snapshot():
            connection.reset()

    def refuse(self) -> None:
        """Reset every connection and every new one, as if the server was down."""
        with self._gate:
            self._refusing = True
        self.cut()

    def accept(self) -> None:
        with self._gate:
            self._refusing = False

    def freeze(self) -> None:
        """Forward nothing more in either direction; when this returns, no data is in transit.

        New connections are accepted and frozen, too. The end of a connection is not forwarded
        either: for the server, a client killed after a freeze looks like one on a lost host.
        """
        with self._gate:
            self._frozen = True
            self._gate.wait_for(lambda: self._sending == 0, timeout=1)

    def thaw(self) -> None:
        """Forward again, beginning with the data held back: nothing is lost."""
        with self._gate:
            self._frozen = False
            self._gate.notify_all()

    def delay(self, seconds: float) -> None:
        """Hold every chunk back this long, in each direction: a round trip takes twice as long."""
        self._delay = seconds

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._snapshot())

    # --- for the connections

    def forward(self, target: socket.socket, data: bytes) -> None:
        """Send when the gate is open; no data means the end of this direction."""
        if self._delay:
            time.sleep(self._delay)
        with self._gate:
            self._wait_until_open()
            self._sending += 1
        try:
            if data:
                target.sendall(data)
            else:
                target.shutdown(socket.SHUT_WR)
        finally:
            with self._gate:
                self._sending -= 1
                self._gate.notify_all()

    def wait_until_open(self) -> None:
        """Wait until the proxy is thawed: only then is the end of one side passed to the other."""
        with self._gate, suppress(ConnectionAbortedError):
            self._wait_until_open()

    def forget(self, connection: ProxiedConnection) -> None:
        with self._gate:
            self._connections.discard(connection)

    def _wait_until_open(self) -> None:
        self._gate.wait_for(lambda: not self._frozen or self._closed)
        if self._closed:
            raise ConnectionAbortedError  # held-back data is never delivered

    def _snapshot(self) -> list[ProxiedConnection]:
        with self._gate:
            return list(self._connections)

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            self.accepted += 1
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        try:
            server = dial(self.upstream)
        except OSError:
            reset(client)
            return
        connection = self.connection_type(self, client, server, self.accepted)
        with self._gate:
            refused = self._refusing or self._closed
            if not refused:
                self._connections.add(connection)
        if refused:
            connection.reset()
        else:
            connection.start()
