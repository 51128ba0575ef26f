"""A receiver on a loopback port, as good or as bad as a test likes: real sockets, a thread each."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import parse_headers
from time import monotonic
from typing import Any, BinaryIO

from tests.support.ports import free_port


@dataclass(frozen=True)
class Got:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def attempt(self) -> int:
        return int(self.headers["outlast-attempt"])

    @property
    def message(self) -> Any:
        return json.loads(self.body)


Behaviour = Callable[[Got, BinaryIO, threading.Event], None]


def answers(status: int, body: str = "", **headers: str) -> Behaviour:
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = len(body.encode())
    head = f"HTTP/1.1 {status} So\r\n{named}content-length: {length}\r\nconnection: close\r\n\r\n"

    def answer(got: Got, out: BinaryIO, over: threading.Event) -> None:
        out.write((head + body).encode())

    return answer


def drips(beginning: str) -> Behaviour:
    """These words, and then a byte now and again, for as long as somebody listens."""

    def answer(got: Got, out: BinaryIO, over: threading.Event) -> None:
        out.write(beginning.encode())
        while not over.wait(0.02):
            out.write(b"x")

    return answer


def hangs(got: Got, out: BinaryIO, over: threading.Event) -> None:
    over.wait()


def hangs_up(got: Got, out: BinaryIO, over: threading.Event) -> None:
    pass


class Receiver:
    """`behave` decides what each request is answered; `got` has them all."""

    def __init__(self) -> None:
        self.behave: Callable[[Got], Behaviour] = lambda got: answers(200)
        self.got: list[Got] = []
        self.port = free_port()
        self._over = threading.Event()
        self._server: socketserver.ThreadingTCPServer | None = None

    def url(self, path: str = "/hooks") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def of(self, id: str) -> list[Got]:
        return [got for got in list(self.got) if got.id == id]

    def open(self) -> None:
        receiver = self

        class Handler(socketserver.StreamRequestHandler):
            wbufsize = 0

            def handle(self) -> None:
                with suppress(OSError):
                    receiver._receive(self.rfile, self.wfile)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False
            request_queue_size = 100

        self._server = Server(("127.0.0.1", self.port), Handler)
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(0.01,), name="receiver", daemon=True).start()

    def close(self) -> None:
        """From now on connections are refused."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def end(self) -> None:
        self._over.set()
        self.close()

    def _receive(self, read: Any, write: Any) -> None:
        words = read.readline().decode().split()
        if len(words) != 3:
            return  # who connected went away
        headers = {name.lower(): value for name, value in parse_headers(read).items()}
        body = read.read(int(headers["content-length"]))
        got = Got(words[1], headers, body, monotonic())
        self.got.append(got)
        self.behave(got)(got, write, self._over)


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.open()
    try:
        yield receiver
    finally:
        receiver.end()
