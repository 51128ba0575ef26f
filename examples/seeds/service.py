"""`outlast serve` in a seed, and the browsers that follow its events."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import urllib.request
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

from processes import Process, answers
from stage import Stage

RST = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset


def serve(stage: Stage, port: int, *flags: object, **env: str) -> Process:
    """A service on loopback that answers."""
    words = ("-m", "outlast", "serve", "--port", port, "--open-metrics", *flags)
    server = stage.start(f"serve-{port}", sys.executable, *words, **env)
    stage.wait(lambda: answers(port), f"the service answers on {port}")
    return server


def token(*scopes: str) -> str:
    """A new token for the run's database."""
    flags = [word for scope in scopes for word in ("--scope", scope)]
    command = [sys.executable, "-m", "outlast", "token", "create", *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def metric(port: int, name: str) -> float | None:
    """A metric without labels; None while the service does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            lines = [line.split() for line in page.read().decode().splitlines()]
    except (OSError, HTTPException):
        return None
    return next((float(words[1]) for words in lines if words[0] == name), None)


class Follower(threading.Thread):
    """An `EventSource`: after any break it resumes after the last event that it has."""

    def __init__(self, port: int, secret: str, path: str) -> None:
        super().__init__(daemon=True)
        self.events: list[dict[str, Any]] = []
        self._port, self._secret, self._path = port, secret, path
        self._last = ""
        self._line: socket.socket | None = None
        self._stopped = threading.Event()
        self.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._line is not None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
        self.join(15)

    def run(self) -> None:
        while not self._stopped.is_set():
            with suppress(OSError, HTTPException):
                self._follow()
            self._stopped.wait(0.2)

    def _follow(self) -> None:
        headers = {"Authorization": f"Bearer {self._secret}", "Accept": "text/event-stream"}
        if self._last:
            headers["Last-Event-ID"] = self._last
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=15.0)) as connection:
            connection.request("GET", self._path, headers=headers)
            self._line = connection.sock
            response = connection.getresponse()
            id = data = ""
            while not self._stopped.is_set():
                line = response.readline().decode()
                if not line:
                    return
                field, _, value = line.rstrip("\n").partition(": ")
                if field == "id":
                    id = value
                elif field == "data":
                    data = value
                elif not field:  # the empty line after an event
                    if data:
                        self.events.append({"id": id, **json.loads(data)})
                    self._last, id, data = id or self._last, "", ""


class Watchers:
    """Browsers that ask for events, and are gone by a reset, without having read a frame."""

    def __init__(self, port: int, secret: str, path: str, number: int) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\r\n"
        address = ("127.0.0.1", port)
        self._sockets = [socket.create_connection(address, 5.0) for _ in range(number)]
        for one in self._sockets:
            one.sendall(request.encode())

    def reset(self) -> None:
        for one in self._sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
            one.close()
