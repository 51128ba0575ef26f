"""A remote worker by hand: a socket, a request, and frames as they come."""

from __future__ import annotations

import json
import socket
import struct
import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from outlast.model.settings import ServiceSettings
from tests.service.serving import Served

REPORTS = "/api/v1/tasks/reports"
QUICK = ServiceSettings(offer_lease=1.0, remote_lease=2.0)


class Streamed:
    """One stream, open until it is closed or reset."""

    def __init__(
        self, url: str, token: str | None, *, accept: str = "application/x-ndjson",
        buffer: int | None = None, **wish: Any,
    ) -> None:  # fmt: skip
        parts = urlsplit(url)
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(30)
        self.socket.connect((parts.hostname, parts.port))
        query = urlencode({"worker": "hand", "tasks": "work", "credit": 5, **wish})
        lines = [
            f"GET /api/v1/dequeue?{query} HTTP/1.1",
            f"host: {parts.netloc}",
            f"accept: {accept}",
            *([f"authorization: Bearer {token}"] if token else []),
        ]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._raw = b""
        self.body = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def reset(self) -> None:
        """As a broken line: RST, and what was not read is gone."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def head(self) -> str:
        while b"\r\n\r\n" not in self._raw:
            self._receive()
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        return head.decode()

    def line(self) -> bytes:
        """The next line of the body, as it came; b"" at its end."""
        while b"\n" not in self.body:
            piece = self._chunk()
            if not piece:
                return b""
            self.body += piece
        line, _, self.body = self.body.partition(b"\n")
        return line + b"\n"

    def frame(self, kind: str | None = None) -> dict[str, Any]:
        """The next frame (of this kind); what only says that the server lives is stepped over."""
        while line := self.line():
            if line.strip() and not line.startswith((b":", b"event:")):
                frame = json.loads(line.removeprefix(b"data: "))
                if kind in (None, frame["type"]):
                    return dict(frame)
        raise AssertionError(f"the stream ended without {kind}")

    def offers(self, number: int) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = []
        while len(jobs) < number:
            jobs += self.frame("offers")["jobs"]
        return jobs

    def ends(self, within: float) -> bool:
        until = time.monotonic() + within
        self.socket.settimeout(within)
        try:
            while self.line():
                assert time.monotonic() < until
        except TimeoutError:
            return False
        return True

    def _chunk(self) -> bytes:
        while b"\r\n" not in self._raw:
            if not self._receive():
                return b""
        size, _, rest = self._raw.partition(b"\r\n")
        length = int(size, 16)
        while len(rest) < length + 2:
            if not self._receive():
                return b""
            rest = self._raw.partition(b"\r\n")[2]
        self._raw = rest[length + 2 :]
        return rest[:length]

    def _receive(self) -> int:
        data = self.socket.recv(65536)
        self._raw += data
        return len(data)


def opened(served: Served, token: str | None, **wish: Any) -> Streamed:
    """A stream that the server has begun."""
    stream = Streamed(served.url, token, **wish)
    head = stream.head()
    assert " 200 " in head.splitlines()[0], head
    return stream


def report(served: Served, token: str | None, *reports: dict[str, Any]) -> list[dict[str, Any]]:
    answer = served.post(REPORTS, token, json={"reports": reports})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["reports"])


def said(job: dict[str, Any], do: str, **more: Any) -> dict[str, Any]:
    return {"do": do, "token": job["token"], **more}


def statuses(answers: list[dict[str, Any]]) -> list[str]:
    return [answer["status"] for answer in answers]
