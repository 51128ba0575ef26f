"""Connections before anybody has shown a token: bounded in number, time and size."""

from __future__ import annotations

import inspect
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from outlast import Outlast
from outlast.model.settings import ServiceSettings
from outlast.service.connections import RESERVED_FILES, Connections, connection_limit
from outlast.service.server import MAX_HEAD_BYTES, BoundedProtocol
from tests.service.serving import Served, serving
from tests.service.streaming import Streamed
from tests.support import Processes, eventually
from tests.support.control_calls import delays
from tests.support.ports import free_port

pytestmark = pytest.mark.kinds("sqlite")

FILES = 256
HALF_OPEN = 300
SERVER = f"""
    import logging, resource, sys
    url, port, loop = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
    logging.basicConfig(level=logging.WARNING)
    from outlast import Outlast
    from outlast.service import service
    from outlast.service.server import BoundedServer

    app = service(Outlast(url))
    options = dict(log_config=None, ws="none")
    BoundedServer(app, host="127.0.0.1", port=int(port), loop=loop, **options).run()
"""

BEGUN = (
    b"",
    b"GET /livez HTTP/1.1\r\nhost: localhost\r\n",
    b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 20\r\n\r\n{",
)


@pytest.mark.quiet
@pytest.mark.parametrize("loop", ["asyncio", pytest.param("uvloop", marks=pytest.mark.slow)])
def test_half_open_connections_do_not_exhaust_the_service(
    ol: Outlast, processes: Processes, loop: str
) -> None:
    """R226: with 256 files and 300 connections that send no whole request, no health check and no
    call takes a second longer than it does at a service that nobody attacks, and streams stay open;
    the log has it in a line."""
    port, other = free_port(), free_port()
    server = processes.python(SERVER, ol.store.address, port, loop)
    processes.python(SERVER, ol.store.address, other, loop)
    url, control = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}"
    web = httpx.Client(base_url=url, trust_env=False, verify=False, timeout=5)
    for path in ("/livez", f"{control}/livez"):
        eventually(lambda path=path: _status(web, path) == 200, 30, message=server.output)
    with ExitStack() as held, Streamed(url, None, worker="far") as stream:
        stream.head()
        stream.frame("hello")
        for number in range(HALF_OPEN):
            held.enter_context(half_open(port, BEGUN[number % len(BEGUN)]))
        with ThreadPoolExecutor(2) as callers:
            for path in ("/livez", "/readyz", "/api/v1/jobs"):
                took = [tuple(callers.map(_timed, (url, control), (path, path))) for _ in range(5)]
                assert max(delays(took)) < 1.0, (path, took)
        assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) < FILES - 20
        assert web.post("/api/v1/jobs", json={"task": "work"}).status_code == 201
        assert stream.frame("offers")["jobs"][0]["task"] == "work", "the stream is still served"
    web.close()
    said = server.output()
    assert said.count("connections reached their limit") == 1, said
    assert "Traceback" not in said and "out of system resource" not in said


def _timed(url: str, path: str) -> float:
    """Seconds that a call takes, by a connection of its own."""
    with httpx.Client(base_url=url, trust_env=False, verify=False, timeout=30) as new:
        since = time.monotonic()
        assert new.get(path).status_code == 200
        return time.monotonic() - since


def _status(web: httpx.Client, path: str) -> int:
    try:
        return web.get(path).status_code
    except httpx.TransportError:
        return 0


@contextmanager
def half_open(port: int, said: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(said)
        yield connection


def test_a_request_must_come_whole_and_in_time(ol: Outlast) -> None:
    """R226: silent connections, heads that trickle, and bodies that trickle behind an answer are
    closed; streams and waiting calls last longer than that."""
    with serving(ol, ServiceSettings(header_timeout=0.5)) as served, ExitStack() as held:
        port = urlsplit(served.url).port
        assert port is not None
        stream = held.enter_context(Streamed(served.url, None))
        stream.head()
        stream.frame("hello")
        job = served.post("/api/v1/jobs", json={"task": "t"}).json()["id"]
        waited: list[int] = []
        path = f"/api/v1/jobs/{job}/result?wait=2"
        waiting = threading.Thread(target=lambda: waited.append(served.get(path).status_code))
        waiting.start()
        lines = [
            held.enter_context(half_open(port, said))
            for said in (
                b"",
                b"GET / HTTP/1.1\r\n",
                b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n",  # answered, then no next one
                b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n",
            )
        ]
        since = time.monotonic()
        trickling = threading.Thread(target=_trickle, args=(lines, since + 10))
        trickling.start()
        trickling.join()
        assert time.monotonic() - since < 8, "all were closed long before"
        waiting.join()
        assert waited == [202]
        assert served.post("/api/v1/jobs", json={"task": "work"}).status_code == 201
        assert stream.frame("offers")["jobs"][0]["task"] == "work"


def _trickle(lines: list[socket.socket], until: float) -> None:
    """A byte at a time on each of them, until the server has closed all."""
    for line in lines:
        line.settimeout(0.02)
    left = list(lines)
    while left and time.monotonic() < until:
        for line in tuple(left):
            try:
                line.sendall(b"x" if line is not lines[2] else b"\n")
                if line.recv(65536) == b"":
                    left.remove(line)
            except TimeoutError:
                pass
            except OSError:
                left.remove(line)
        time.sleep(0.05)
    assert not left, f"{len(left)} connections are still open"


def test_a_head_without_end_is_refused(served: Served) -> None:
    """R226: memory is bounded before anybody has shown a token."""
    port = urlsplit(served.url).port
    assert port is not None
    with half_open(port, b"GET / HTTP/1.1\r\n") as line:
        line.settimeout(3)
        try:
            for _ in range(20 * MAX_HEAD_BYTES // 1000):
                line.sendall(b"x-more: " + b"y" * 990 + b"\r\n")
            answer = line.recv(100)
        except ConnectionError:  # while we went on sending
            answer = b"HTTP/1.1 431 "
        assert answer.startswith(b"HTTP/1.1 431 ")
    assert served.get("/livez").status_code == 200


class Fake:
    """A connection as the registry sees it."""

    def __init__(self, address: str, since: float | None) -> None:
        self.address, self.pending_since, self.allowed_s = address, since, 10.0
        self.closed = False

    def note_progress(self) -> None: ...

    def cut(self) -> None:
        self.closed = True


async def test_whoever_holds_most_pending_connections_loses_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R226: a lone client beside a flood from one address keeps its connection; those that are
    served are never closed, and when all are served the next one is refused."""
    registry = Connections(20)
    lone = Fake("10.0.0.1", 0.0)
    assert registry.add(lone)
    flood = [Fake("10.9.9.9", float(number)) for number in range(200)]
    with caplog.at_level(logging.WARNING):
        assert all(registry.add(one) for one in flood)
    assert not lone.closed and len(registry) <= 20
    assert [one.closed for one in flood] == [True] * 181 + [False] * 19
    assert caplog.text.count("connections reached their limit") == 1
    for one in (lone, *flood):
        registry.remove(one)
    served = [Fake("10.0.0.1", None) for _ in range(20)]
    assert all(registry.add(one) for one in served)
    assert not registry.add(Fake("10.0.0.2", 1.0)) and not any(one.closed for one in served)
    registry.close()


def test_the_limit_stays_below_that_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """R226: whatever was asked for, databases and pipes find files, too."""
    import resource

    for files, asked, limit in ((1024, 0, 896), (1024, 100, 100), (1024, 5000, 896), (256, 0, 128)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert connection_limit(ServiceSettings(max_connections=asked)) == limit
        assert limit <= files - RESERVED_FILES


def test_uvicorn_has_what_the_protocol_builds_on() -> None:
    """R226: a release of uvicorn that changes these names is found here, before users meet it."""
    names = inspect.getsource(HttpToolsProtocol) + inspect.getsource(RequestResponseCycle)
    for used in (
        "self.transport", "self.client", "self.cycle", "self.flow", "self.url", "self.headers",
        "self.app", "self.logger", "self.response_complete", "self.more_body",
    ):  # fmt: skip
        assert f"{used} = " in names or f"{used}: " in names, used
    assert "self.write_paused" in inspect.getsource(FlowControl)
    overridden = {
        name for name, made in vars(BoundedProtocol).items()
        if inspect.isfunction(made) and name in dir(HttpToolsProtocol) and name != "__init__"
    }  # fmt: skip
    assert overridden == {
        "connection_made", "connection_lost", "data_received", "on_message_begin",
        "on_headers_complete", "on_response_complete", "pause_writing",
        "_unsupported_upgrade_warning",
    }  # fmt: skip
    for name in overridden:
        theirs = inspect.signature(getattr(HttpToolsProtocol, name)).parameters
        ours = inspect.signature(getattr(BoundedProtocol, name)).parameters
        assert list(theirs) == list(ours), name


HOST = b"host: localhost\r\n"
BODY = b"content-type: application/json\r\n"
AMBIGUOUS: dict[str, bytes] = {
    "two hosts": b"GET /livez HTTP/1.1\r\n" + HOST + b"host: evil\r\n\r\n",
    "one host twice": b"GET /livez HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "a host with a path": b"GET /livez HTTP/1.1\r\nhost: localhost/x\r\n\r\n",
    "a host with a user": b"GET /livez HTTP/1.1\r\nhost: a@localhost\r\n\r\n",
    "two names in a host": b"GET /livez HTTP/1.1\r\nhost: a localhost\r\n\r\n",
    "another absolute target": b"GET http://evil/livez HTTP/1.1\r\n" + HOST + b"\r\n",
    "an absolute target without host": b"GET http://localhost/livez HTTP/1.1\r\n\r\n",
    "two lengths": b"POST /login HTTP/1.1\r\n" + HOST + BODY
    + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}x",
    "one length twice": b"POST /login HTTP/1.1\r\n" + HOST + BODY
    + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    "a list of lengths": b"POST /login HTTP/1.1\r\n" + HOST + BODY
    + b"content-length: 2, 2\r\n\r\n{}",
    "length and chunks": b"POST /login HTTP/1.1\r\n" + HOST + BODY
    + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two encodings": b"POST /login HTTP/1.1\r\n" + HOST + BODY
    + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a strange encoding": b"POST /login HTTP/1.1\r\n" + HOST + BODY
    + b"transfer-encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two tokens": b"GET /api/v1/whoami HTTP/1.1\r\n" + HOST
    + b"authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n",
    "two origins": b"POST /logout HTTP/1.1\r\n" + HOST
    + b"origin: http://localhost\r\norigin: http://evil\r\n\r\n",
    "two kinds of body": b"POST /login HTTP/1.1\r\n" + HOST + BODY
    + b"content-type: text/plain\r\ncontent-length: 2\r\n\r\n{}",
    "a folded header": b"GET /livez HTTP/1.1\r\n" + HOST + b"x-a: b\r\n c\r\n\r\n",
    "a space before the colon": b"GET /livez HTTP/1.1\r\n" + HOST + b"x-a : b\r\n\r\n",
    "a NUL": b"GET /livez HTTP/1.1\r\n" + HOST + b"x-a: b\x00c\r\n\r\n",
    "a bare line feed": b"GET /livez HTTP/1.1\nhost: localhost\n\n",
    "no path": b"GET livez HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tunnel": b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n",
}  # fmt: skip


def test_requests_that_can_be_understood_in_two_ways_are_refused(served: Served) -> None:
    """R233: two Host headers, targets that contradict the Host header, lengths, encodings and
    tokens that come twice: 400, whatever a proxy before us made of them."""
    found = {name: _ask(served, said) for name, said in AMBIGUOUS.items()}
    assert {name: status for name, status in found.items() if status != 400} == {}
    same = urlsplit(served.url).netloc.encode()
    absolute = b"GET http://" + same + b"/livez HTTP/1.1\r\nhost: " + same + b"\r\n\r\n"
    assert _ask(served, absolute) == 200
    assert _ask(served, b"GET /livez HTTP/1.0\r\n\r\n") == 200
    assert _ask(served, b"GET /livez HTTP/1.1\r\nhost: [::1]:80\r\n\r\n") == 200


def _ask(served: Served, said: bytes) -> int:
    port = urlsplit(served.url).port
    assert port is not None
    with half_open(port, said) as line:
        answer = line.recv(65536)
        return int(answer.split()[1]) if answer else 400  # closed without a word


@pytest.mark.parametrize(
    "after", ["/x\r\nset-cookie: a=b", "/x\nset-cookie: a=b", "/x\x00y", "/\u2028"]
)
def test_what_a_caller_sends_adds_no_header_to_an_answer(served: Served, after: str) -> None:
    """R233: a form's target goes into `Location`: as a path, never as a line of its own."""
    token = served.token("read")
    answer = served.post("/login", data={"token": token, "after": after})
    assert answer.status_code == 303
    cookies = [value for name, value in answer.headers.multi_items() if name == "set-cookie"]
    assert len(cookies) == 1 and "outlast_session" in cookies[0]
    assert answer.headers["location"].isprintable()
