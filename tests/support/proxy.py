"""The proxy of `outlast verify`, with traps that lose one request or one reply.

swallow_reply_after(p)  the server did what the client asked, but the answer is lost
drop_request_when(p)    the connection is lost before the request reaches the server
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from outlast.verify.faults import proxy
from outlast.verify.faults.proxied_connection import CHUNK_BYTES, ProxiedConnection

Predicate = Callable[[bytes], bool] | bytes

QUIET_S = 0.05  # a client that sends nothing for so long waits for its answer
WINDOW_BYTES = 4096  # how much of what the client already sent a predicate sees again


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


class TrappedConnection(ProxiedConnection):
    """A connection that springs the trap which its proxy has set."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trap: ProxyTrap | None = None
        self._sent = b""
        self._last_request = 0.0

    def side_lost(self) -> None:
        if self.trap is None:  # else `_drop_answer` has the last word
            super().side_lost()

    def forward_request(self, data: bytes) -> bool:
        assert isinstance(self.proxy, Proxy)
        self._sent = self._sent[-WINDOW_BYTES:] + data
        trap = self.proxy.trap_for(self._sent)
        if trap is not None and not trap.keep_request:
            self.reset()
            trap.triggered.set()
            return False
        if trap is not None:
            self.trap = trap  # before the request goes out, so that no answer slips through
        self._last_request = time.monotonic()
        return super().forward_request(data)

    def forward_reply(self, data: bytes) -> bool:
        if self.trap is not None:
            self._drop_answer(self.trap)
            return False
        return super().forward_reply(data)

    def _drop_answer(self, trap: ProxyTrap) -> None:
        """The answer has begun. Let the server finish all it is asked, and then say nothing.

        In a pipeline this may be the answer to something earlier, and the request that matched
        may have more parts: wait until the client waits, then read on to the server's own end.
        """
        with suppress(OSError):
            self.server.settimeout(QUIET_S)
            while not self._is_quiet():
                pass
            self.server.shutdown(socket.SHUT_WR)
            self.server.settimeout(30)
            while self.server.recv(CHUNK_BYTES):
                pass
        self.reset()
        trap.triggered.set()

    def _is_quiet(self) -> bool:
        try:
            return not self.server.recv(CHUNK_BYTES)
        except TimeoutError:
            return time.monotonic() - self._last_request > QUIET_S


class Proxy(proxy.Proxy):
    connection_type = TrappedConnection
    _trap: ProxyTrap | None = None

    def swallow_reply_after(self, predicate: Predicate) -> ProxyTrap:
        """Let the server do what the client asks, then lose the answer and the connection.

        The predicate sees what one client connection sent (or give the bytes to look for, such
        as b"COMMIT"). It springs once, for one connection; the client is reset only after the
        server has answered, so the effect is there when the client learns of the loss.
        """
        return self._set(ProxyTrap(predicate, keep_request=True))

    def drop_request_when(self, predicate: Predicate) -> ProxyTrap:
        """Lose the connection before the request that matches reaches the server. Once."""
        return self._set(ProxyTrap(predicate, keep_request=False))

    def trap_for(self, sent: bytes) -> ProxyTrap | None:
        trap = self._trap
        if trap is not None and trap.claims(sent):
            self._trap = None
            return trap
        return None

    def _set(self, trap: ProxyTrap) -> ProxyTrap:
        self._trap = trap
        return trap
