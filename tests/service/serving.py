"""The service in a real server on a loopback port, in a thread of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from outlast import Outlast
from outlast.model.api_token import new_token
from outlast.model.settings import ServiceSettings
from outlast.ops import tokens
from outlast.service import ServiceApp, service
from outlast.service.server import BoundedServer
from tests.support import eventually


class Served:
    """A running service: `served.get("/api/v1/…", token)`, `served.token("read", tenant="a")`."""

    def __init__(self, ol: Outlast, app: ServiceApp, url: str) -> None:
        self.ol = ol
        self.app = app
        self.url = url
        # verify: a client that reads all the certificates takes longer than most of these tests
        self.http = httpx.Client(base_url=url, timeout=30, trust_env=False, verify=False)

    def token(self, *scopes: str, name: str = "test", **limits: Any) -> str:
        """A fresh token's secret."""
        return self.made_token(*scopes, name=name, **limits)[0]

    def made_token(self, *scopes: str, name: str = "test", **limits: Any) -> tuple[str, str]:
        """A fresh token: its secret and its id."""
        secret, new = new_token(name, scopes or ("admin",), **limits)
        return secret, self.ol.store.run(tokens.create, new, "test").id

    def revoke(self, id: str) -> None:
        self.ol.store.run(tokens.revoke, id, "test")

    def call(self, method: str, path: str, token: str | None = None, **said: Any) -> httpx.Response:
        headers = {**bearer(token), **said.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **said)

    def get(self, path: str, token: str | None = None, **said: Any) -> httpx.Response:
        return self.call("GET", path, token, **said)

    def post(self, path: str, token: str | None = None, **said: Any) -> httpx.Response:
        return self.call("POST", path, token, **said)


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


@contextmanager
def serving(ol: Outlast, settings: ServiceSettings | None = None) -> Iterator[Served]:
    app = service(ol, settings)
    with running(app) as url:
        served = Served(ol, app, url)
        try:
            yield served
        finally:
            served.http.close()


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Any ASGI app on a free port; leaving it is a graceful shutdown."""
    said: dict[str, Any] = {"log_config": None, "timeout_graceful_shutdown": 5}
    said |= {"host": "127.0.0.1", "port": 0}
    ours = isinstance(app, ServiceApp)
    server = BoundedServer(app, **said) if ours else uvicorn.Server(uvicorn.Config(app, **said))
    thread = threading.Thread(target=server.run, name="test-service", daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive(), timeout=20)
        assert server.started, "the server did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"
