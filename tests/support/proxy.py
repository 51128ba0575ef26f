"""A TCP proxy on loopback that misbehaves on demand.

    client ──▶ proxy ──▶ server        (two threads for each connection, one for each direction)

What each switch looks like from the client's side:

    cut()                   connection reset; the next connection works
    refuse() / accept()     connection reset at once, for old and new ones, until accept()
    freeze() / thaw()       silence: nothing arrives in either direction, nobody is told
    delay(seconds)          a slow line: each direction takes that much longer
    swallow_reply_after(p)  the server did what the client asked, but the answer is lost
    drop_request_when(p)    the connection is lost before the request reaches the server
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

Upstream = tuple[str, int] | str | Path
Predicate = Callable[[bytes], bool] | bytes

_CHUNK = 65536
_QUIET = 0.05  # a client that sends nothing for so long waits for its answer
_WINDOW = 4096  # how much of what the client already sent a predicate sees again


class Trap:
    """A fault that waits for its moment. `wait()` returns when it has happened."""

    def __init__(self, predicate: Predicate, keep_request: bool) -> None:
        self._matches = predicate if callable(predicate) else lambda data: predicate in data
        self._lock = threading.Lock()
        self._taken = False
        self.keep_request = keep_request
        self.sprung = threading.Event()

    def take(self, sent: bytes) -> bool:
        """Whether this connection, having sent these bytes, is the one. Only one ever is."""
        with self._lock:
            if not self._taken and self._matches(sent):
                self._taken = True
                return True
            return False

    def wait(self, timeout: float = 10.0) -> None:
        assert self.sprung.wait(timeout), f"nothing matched within {timeout:g} s"


class Proxy:
    """Listens on `host:port` while the `with` block runs; `url(u)` is `u` through the proxy."""

    host = "127.0.0.1"

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self._gate = threading.Condition()
        self._frozen = False
        self._sending = 0
        self._refusing = False
        self._closed = False
        self._delay = 0.0
        self._trap: Trap | None = None
        self.accepted = 0  # connections that clients have opened, refused ones included
        self._connections: set[_Connection] = set()
        self._listener = socket.create_server((self.host, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, name="proxy", daemon=True)

    @classmethod
    def before(cls, url: str) -> Self:
        """A proxy in front of the server that a database URL names."""
        parts = urlsplit(url)
        assert parts.hostname and parts.port, f"no host and port in {url}"
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
        """Forward nothing more in either direction; when this returns, nothing is under way.

        New connections are accepted and frozen too. That a client went away is not forwarded
        either: freeze, kill the client, and the server believes in it as after a lost host.
        """
        with self._gate:
            self._frozen = True
            self._gate.wait_for(lambda: self._sending == 0, timeout=1)

    def thaw(self) -> None:
        """Forward again, first what was held back: the network is back, nothing was lost."""
        with self._gate:
            self._frozen = False
            self._gate.notify_all()

    def delay(self, seconds: float) -> None:
        """Hold every chunk back this long, in each direction: a round trip takes twice as long."""
        self._delay = seconds

    def swallow_reply_after(self, predicate: Predicate) -> Trap:
        """Let the server do what the client asks, then lose the answer and the connection.

        The predicate sees what one client connection sent (or give the bytes to look for, such
        as b"COMMIT"). It springs once, for one connection; the client is reset only after the
        server has answered, so the effect is there when the client learns of the loss.
        """
        return self._set(Trap(predicate, keep_request=True))

    def drop_request_when(self, predicate: Predicate) -> Trap:
        """Lose the connection before the request that matches reaches the server. Once."""
        return self._set(Trap(predicate, keep_request=False))

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._snapshot())

    # --- for the connections

    def taken(self, sent: bytes) -> Trap | None:
        trap = self._trap
        if trap is not None and trap.take(sent):
            self._trap = None
            return trap
        return None

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
        """What one side does while the line is frozen, the other learns when it is back."""
        with self._gate, suppress(ConnectionAbortedError):
            self._wait_until_open()

    def forget(self, connection: _Connection) -> None:
        with self._gate:
            self._connections.discard(connection)

    def _wait_until_open(self) -> None:
        self._gate.wait_for(lambda: not self._frozen or self._closed)
        if self._closed:
            raise ConnectionAbortedError  # and what was held back is never delivered

    def _set(self, trap: Trap) -> Trap:
        self._trap = trap
        return trap

    def _snapshot(self) -> list[_Connection]:
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
            server = _dial(self.upstream)
        except OSError:
            _reset(client)
            return
        connection = _Connection(self, client, server)
        with self._gate:
            refused = self._refusing or self._closed
            if not refused:
                self._connections.add(connection)
        if refused:
            connection.reset()
        else:
            connection.start()


class _Connection:
    """One client, its connection to the server, and the two threads between them."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.trap: Trap | None = None
        self._last_request = 0.0
        self._lock = threading.Lock()
        self._open_directions = 2

    def start(self) -> None:
        for direction in (self._requests, self._replies):
            threading.Thread(target=self._run, args=(direction,), daemon=True).start()

    def reset(self) -> None:
        _reset(self.client)
        _reset(self.server)
        self.proxy.forget(self)

    def _run(self, direction: Callable[[], None]) -> None:
        try:
            direction()
        except OSError:
            self.proxy.wait_until_open()
            if self.trap is None:  # else `_swallow` has the last word
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
        while data := self.client.recv(_CHUNK):
            sent = sent[-_WINDOW:] + data
            trap = self.proxy.taken(sent)
            if trap is not None and not trap.keep_request:
                self.reset()
                trap.sprung.set()
                return
            if trap is not None:
                self.trap = trap  # before the request goes out, so that no answer slips through
            self._last_request = time.monotonic()
            self.proxy.forward(self.server, data)
        self.proxy.forward(self.server, b"")

    def _replies(self) -> None:
        while data := self.server.recv(_CHUNK):
            if self.trap is not None:
                self._swallow(self.trap)
                return
            self.proxy.forward(self.client, data)
        self.proxy.forward(self.client, b"")

    def _swallow(self, trap: Trap) -> None:
        """The answer has begun. Let the server finish all it is asked, and then say nothing.

        In a pipeline this may be the answer to something earlier, and the request that matched
        may have more parts: wait until the client waits, then read on to the server's own end.
        """
        with suppress(OSError):
            self.server.settimeout(_QUIET)
            while not self._is_quiet():
                pass
            self.server.shutdown(socket.SHUT_WR)
            self.server.settimeout(30)
            while self.server.recv(_CHUNK):
                pass
        self.reset()
        trap.sprung.set()

    def _is_quiet(self) -> bool:
        try:
            return not self.server.recv(_CHUNK)
        except TimeoutError:
            return time.monotonic() - self._last_request > _QUIET


def _dial(upstream: Upstream) -> socket.socket:
    if isinstance(upstream, tuple):
        return socket.create_connection(upstream, timeout=None)
    server = socket.socket(socket.AF_UNIX)
    server.connect(str(upstream))
    return server


def _reset(peer: socket.socket) -> None:
    """Close with RST instead of FIN, and wake the thread that reads from it."""
    with suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        peer.shutdown(socket.SHUT_RD)
    peer.close()
