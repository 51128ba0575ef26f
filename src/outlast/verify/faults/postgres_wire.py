"""Parser of PostgreSQL's wire protocol, just enough to detect a committed transaction.

    T D D C(UPDATE 2) Z(in a transaction)     …     C(COMMIT) Z(idle): committed
    C(INSERT 0 1) Z(idle)                      a statement that commits by itself

The connection is not encrypted; of other messages only the framing is read.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator

_WRITES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_NO_WRITES = ("SELECT", "BEGIN", "COMMIT", "SET", "SHOW", "LISTEN", "UNLISTEN", "NOTIFY", "FETCH")


class ServerMessages:
    """The messages of a server on one connection."""

    def __init__(self) -> None:
        self._rest = b""
        self._written: list[str] = []

    def commits(self, data: bytes) -> Iterator[str]:
        """The statements of each commit in these bytes."""
        for kind, body in self._messages(data):
            if kind == b"C":
                self._command_done(body.rstrip(b"\0").decode())
            elif kind == b"E":
                self._written.clear()
            elif kind == b"Z" and body == b"I" and self._written:
                yield ", ".join(self._written)
                self._written.clear()

    def _command_done(self, tag: str) -> None:
        command, *_, last = tag.split(" ") if " " in tag else (tag, "")
        if command == "ROLLBACK":
            self._written.clear()
        elif command in _WRITES:
            if last != "0":
                self._written.append(tag)
        elif command not in _NO_WRITES:
            self._written.append(tag)

    def _messages(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._rest += data
        while len(self._rest) >= 5:
            (length,) = struct.unpack_from("!I", self._rest, 1)
            if len(self._rest) < 1 + length:
                return
            kind, body = self._rest[:1], self._rest[5 : 1 + length]
            self._rest = self._rest[1 + length :]
            yield kind, body


class CommitInspector:
    """An inspector for the proxy: counts commits while armed, and loses the response to number `at`
    (from 1). The server has committed; the client cannot know."""

    def __init__(self) -> None:
        self._connections: dict[int, ServerMessages] = {}
        self._counting = threading.Lock()
        self.arm(lambda: False)

    def arm(self, armed: Callable[[], bool], target: int = 0) -> None:
        """Restart the count."""
        with self._counting:
            self.armed = armed
            self.target = target
            self.commits: list[str] = []
            self.lost = False

    def __call__(self, connection: int, data: bytes, answer: bool) -> bytes:
        if not answer:
            return data
        with self._counting:
            for commit in self._connections.setdefault(connection, ServerMessages()).commits(data):
                if self.armed():
                    self.commits.append(commit)
                    if len(self.commits) == self.target:
                        self.lost = True
                        return b""
        return data
