"""One connection through the proxy: a client, the server, and the two threads between them."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .proxy import Proxy

Upstream = tuple[str, int] | str | Path
Predicate = Callable[[bytes], bool] | bytes

_CHUNK_BYTES = 65536
_QUIET_S = 0.05  # a client that sends nothing for so long waits for its answer
_WINDOW_BYTES = 4096  # how much of what the client already sent a predicate sees again


class ProxyTrap:
    """A fault that waits for its moment. `wait()` returns when it has happened."""

    def __init__(self, predicate: Predicate, keep_request: bool) -> None:
        self._matches = predicate if callable(predicate) else lambda data: predicate in data
        self._lock = threading.Lock()
        self._taken = False
        self.keep_request = keep_request
        self.triggered = threading.Event()

    def claims(self, sent: bytes) -> bool:
        """Whether this connection, having sent these bytes, is the one. Only one ever is."""
        with self._lock:
            if not self._taken and self._matches(sent):
                self._taken = True
                return True
            return False

    def wait(self, timeout: float = 10.0) -> None:
        if not self.triggered.wait(timeout):
            raise TimeoutError(f"nothing matched within {timeout:g} s")


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
        self.trap: ProxyTrap | None = None
        self._last_request = 0.0
        self._lock = threading.Lock()
        self._open_directions = 2

    def start(self) -> None:
        for direction in (self._requests, self._replies):
            threading.Thread(target=self._run, args=(direction,), daemon=True).start()

    def reset(self) -> None:
        reset(self.client)
        reset(self.server)
        self.proxy.forget(self)

    def _run(self, direction: Callable[[], None]) -> None:
        try:
            direction()
        except OSError:
            self.proxy.wait_until_open()
            if self.trap is None:  # else `_drop_answer` has the last word
                self.reset()  # one side is gone: tell the other
        with self._lock:
            self._open_directions -= 1
            last = self._open_directions == 0
        if last:
            self.client.close()
            self.server.close()
            self.proxy.forget(self)

    def _requests(self) -> None:
        sent = b""
        while data := self.client.recv(_CHUNK_BYTES):
            sent = sent[-_WINDOW_BYTES:] + data
            trap = self.proxy.trap_for(sent)
            if trap is not None and not trap.keep_request:
                self.reset()
                trap.triggered.set()
                return
            if trap is not None:
                self.trap = trap  # before the request goes out, so that no answer slips through
            self._last_request = time.monotonic()
            if not self._forward(self.server, data, answer=False):
                return
        self.proxy.forward(self.server, b"")

    def _replies(self) -> None:
        while data := self.server.recv(_CHUNK_BYTES):
            if self.trap is not None:
                self._drop_answer(self.trap)
                return
            if not self._forward(self.client, data, answer=True):
                return
        self.proxy.forward(self.client, b"")

    def _forward(self, target: socket.socket, data: bytes, *, answer: bool) -> bool:
        """Forward what is to go on; False if that was the end."""
        passing = self.proxy.inspect(self.number, data, answer)
        if passing:
            self.proxy.forward(target, passing)
        if len(passing) < len(data):
            self.reset()
            return False
        return True

    def _drop_answer(self, trap: ProxyTrap) -> None:
        """The answer has begun. Let the server finish all it is asked, and then say nothing.

        In a pipeline this may be the answer to something earlier, and the request that matched
        may have more parts: wait until the client waits, then read on to the server's own end.
        """
        with suppress(OSError):
            self.server.settimeout(_QUIET_S)
            while not self._is_quiet():
                pass
            self.server.shutdown(socket.SHUT_WR)
            self.server.settimeout(30)
            while self.server.recv(_CHUNK_BYTES):
                pass
        self.reset()
        trap.triggered.set()

    def _is_quiet(self) -> bool:
        try:
            return not self.server.recv(_CHUNK_BYTES)
        except TimeoutError:
            return time.monotonic() - self._last_request > _QUIET_S


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
