"""Registry of open connections: keeps their number below the limit of open files, and closes those
that are pending for long.

A connection is *pending* while the server waits for the client: for the head of a request, the rest
of a body, or for reading a response. Any client can open pending connections without a token. When
the limit is reached, pending connections are closed for new ones; connections that are being served
stay.

    new ──▶ pending ── whole request ──▶ served ── response sent ──▶ pending (keep-alive) ──▶ …
               │                            │
               ├── header_timeout: closed   └── streams stay here for their whole life
               └── limit reached: closed, first those of the address with most
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Protocol

from ..model.settings import ServiceSettings

log = logging.getLogger("outlast.service")

SWEEP_INTERVAL_S = 1.0
LOG_INTERVAL_S = 60.0
MAX_STALL_S = 120.0  # without progress of a pending write
EVICTED_SHARE = 0.05  # of all connections, closed at once: a flood costs few searches
# Files other than connections: databases, listening sockets, pipes, sockets that are accepted but
# not counted yet.
RESERVED_FILES = 128
MIN_CONNECTIONS = 16


class Connection(Protocol):
    """The interface of one connection."""

    @property
    def address(self) -> str: ...

    @property
    def pending_since(self) -> float | None:
        """The monotonic time since which it is pending; None: it is being served."""

    @property
    def allowed_s(self) -> float:
        """Seconds that it may be pending."""

    def note_progress(self) -> None:
        """Note the progress of pending writes."""

    def cut(self) -> None:
        """Close the connection at once, without sending buffered data."""


def connection_limit(settings: ServiceSettings) -> int:
    """The configured number, reduced to what the limit of open files allows."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return settings.max_connections or 100_000
    allowed = max(MIN_CONNECTIONS, files - max(RESERVED_FILES, files // 8))
    if settings.max_connections > allowed:
        log.warning(
            "max_connections is %d, but the limit of open files (ulimit -n) is %d: at most %d"
            " connections are open at once", settings.max_connections, files, allowed,
        )  # fmt: skip
    return min(settings.max_connections or allowed, allowed)


class Connections:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: set[Connection] = set()
        self._closed: Counter[str] = Counter()  # by reason, since the last log line
        self._logged_at = -LOG_INTERVAL_S
        self._sweeping: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the next sweep is due

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """Add a connection; returns whether there is room, possibly after closing others."""
        if len(self._open) >= self.limit:
            victims = self._victims(max(1, int(self.limit * EVICTED_SHARE)))
            self._cut(victims, "pending closed for others")
            if not victims:
                self._note("refused")
                return False
        self._open.add(connection)
        if self._sweeping is None:
            self._sweep_later()
        return True

    def remove(self, connection: Connection) -> None:
        self._open.discard(connection)

    def sweep(self) -> None:
        """Close connections that have been pending for too long."""
        now, overdue = time.monotonic(), list[Connection]()
        for connection in self._open:
            connection.note_progress()
            since = connection.pending_since
            if since is not None and now - since > connection.allowed_s:
                overdue.append(connection)
        self._cut(overdue, "closed as overdue")

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _sweep_later(self) -> None:
        self._due = time.monotonic() + SWEEP_INTERVAL_S
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._swept)

    def _swept(self) -> None:
        """Sweep, unless the event loop was blocked: then unread requests may have arrived."""
        self._sweeping = None
        if time.monotonic() - self._due < SWEEP_INTERVAL_S:
            self.sweep()
        if self._open:
            self._sweep_later()

    def _victims(self, number: int) -> list[Connection]:
        """Pending connections to close, first those with the most newer pending connections from
        the same address, so that a client with many loses its own; then the oldest."""
        by_address: dict[str, list[tuple[float, Connection]]] = defaultdict(list)
        for connection in self._open:
            if (since := connection.pending_since) is not None:
                by_address[connection.address].append((since, connection))
        ranked = list[tuple[int, float, Connection]]()
        for found in by_address.values():
            found.sort(key=lambda one: one[0], reverse=True)
            ranked += [(-newer, since, one) for newer, (since, one) in enumerate(found)]
        ranked.sort(key=lambda one: one[:2])
        return [connection for _, _, connection in ranked[:number]]

    def _cut(self, connections: Iterable[Connection], reason: str) -> None:
        for connection in connections:
            self._open.discard(connection)
            connection.cut()
            self._note(reason)

    def _note(self, reason: str) -> None:
        """Count closed connections, and log the counts periodically, one line for a flood."""
        self._closed[reason] += 1
        if reason == "closed as overdue" or time.monotonic() - self._logged_at < LOG_INTERVAL_S:
            return
        self._logged_at = time.monotonic()
        summary = ", ".join(f"{number} {what}" for what, number in sorted(self._closed.items()))
        self._closed.clear()
        log.warning("connections reached their limit (%d are open): %s", self.limit, summary)
