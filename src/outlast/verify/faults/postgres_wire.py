"""Parser of PostgreSQL's wire protocol, just enough to detect a committed transaction.

    T D D C(UPDATE 2) Z(in a transaction)     …     C(COMMIT) Z(idle): committed
    C(INSERT 0 1) Z(idle)                      a statement that commits by itself
    C(SELECT 1) Z(idle)                        the same, if its text writes in a WITH clause

The last needs the text: the client sends it once (Parse), then only its name (Bind, Execute).
The connection is not encrypted; of other messages only the framing is read.
"""

from __future__ import annotations

import re
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator

_WRITES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_NO_WRITES = ("SELECT", "BEGIN", "COMMIT", "SET", "SHOW", "LISTEN", "UNLISTEN", "NOTIFY", "FETCH")
# A write inside parentheses, which only a WITH clause has; the tag of the statement may hide it.
_WRITE_IN_WITH = re.compile(r"\(\s*(INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO)\b", re.I)


def hidden_write(statement: str) -> str:
    """The first write in a WITH clause of a statement; empty: there is none."""
    found = _WRITE_IN_WITH.search(statement)
    return " ".join(found[1].upper().split()) if found else ""


class _MessageReader:
    """Splits the bytes of one direction into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def messages(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._rest += data
        while len(self._rest) >= 5:
            (length,) = struct.unpack_from("!I", self._rest, 1)
            if len(self._rest) < 1 + length:
                return
            kind, body = self._rest[:1], self._rest[5 : 1 + length]
            self._rest = self._rest[1 + length :]
            yield kind, body


class ClientMessages:
    """The messages of a client on one connection: for each pending statement, the write that its
    tag will not show.

    `exchanges` has one entry for each ReadyForQuery to come (a Query, or all until a Sync).
    """

    def __init__(self) -> None:
        self._reader: _MessageReader | None = None
        self._startup = b""
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._executed: list[str] = []
        self.exchanges: deque[list[str]] = deque()

    def read(self, data: bytes) -> None:
        for kind, body in self._messages(data):
            if kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self._prepared[name] = hidden_write(text.decode(errors="replace"))
            elif kind == b"B":
                portal, name, _ = body.split(b"\0", 2)
                self._portals[portal] = self._prepared.get(name, "")
            elif kind == b"E":
                self._executed.append(self._portals.get(body.split(b"\0", 1)[0], ""))
            elif kind == b"Q":
                self.exchanges.append([hidden_write(body.decode(errors="replace"))])
            elif kind == b"S":
                self.exchanges.append(self._executed)
                self._executed = []

    def _messages(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._reader is None:
            data = self._after_startup(data)
        return self._reader.messages(data) if self._reader else iter(())

    def _after_startup(self, data: bytes) -> bytes:
        """Skip the first message, which has no kind and also ends in a ReadyForQuery."""
        self._startup += data
        length = int.from_bytes(self._startup[:4], "big")
        if len(self._startup) < max(4, length):
            return b""
        self._reader = _MessageReader()
        self.exchanges.append([])
        return self._startup[length:]


class ServerMessages:
    """The messages of a server on one connection."""

    def __init__(self, client: ClientMessages | None = None) -> None:
        self._reader = _MessageReader()
        self._client = client or ClientMessages()
        self._ended = 0  # statements of the first exchange
        self._written: list[str] = []

    def commits(self, data: bytes) -> Iterator[str]:
        """The statements of each commit in these bytes."""
        for kind, body in self._reader.messages(data):
            if kind == b"C":
                self._command_done(body.rstrip(b"\0").decode())
            elif kind in (b"I", b"s"):  # an empty query, or a part of the rows
                self._hidden_write()
            elif kind == b"E":
                self._written.clear()
            elif kind == b"Z":
                self._exchange_done()
                if body == b"I" and self._written:
                    yield ", ".join(self._written)
                    self._written.clear()

    def _command_done(self, tag: str) -> None:
        command, *_, last = tag.split(" ") if " " in tag else (tag, "")
        hidden = self._hidden_write()
        if command == "ROLLBACK":
            self._written.clear()
        elif hidden:
            self._written.append(f"{tag} with {hidden}")
        elif command in _WRITES:
            if last != "0":
                self._written.append(tag)
        elif command not in _NO_WRITES:
            self._written.append(tag)

    def _hidden_write(self) -> str:
        """The hidden write of the statement that has ended. A Query of several statements has one
        entry for all."""
        statements = self._client.exchanges[0] if self._client.exchanges else []
        self._ended += 1
        return statements[min(self._ended, len(statements)) - 1] if statements else ""

    def _exchange_done(self) -> None:
        self._ended = 0
        if self._client.exchanges:
            self._client.exchanges.popleft()


class CommitInspector:
    """An inspector for the proxy: counts commits while armed, and drops the response to one of them
    (from 1). The server has committed; the client cannot know."""

    def __init__(self) -> None:
        self._clients: dict[int, ClientMessages] = {}
        self._servers: dict[int, ServerMessages] = {}
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
        with self._counting:
            client = self._clients.setdefault(connection, ClientMessages())
            if not answer:
                client.read(data)
                return data
            server = self._servers.setdefault(connection, ServerMessages(client))
            for commit in server.commits(data):
                if self.armed():
                    self.commits.append(commit)
                    if len(self.commits) == self.target:
                        self.lost = True
                        return b""
        return data
