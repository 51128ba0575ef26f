"""The dashboard beside the demo: `outlast demo --serve`, in a thread of the demo's process."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager

from ..client.client import Outlast
from ..verify.workspace import Workspace

USUAL_PORT = 8642
STOP_TIMEOUT_S = 5.0


@contextmanager
def served(workspace: Workspace) -> Iterator[str]:
    """Serve the demo's database on this machine; yields the address of the page of recoveries."""
    from ..service import service
    from ..service.server import BoundedServer

    with Outlast(workspace.url, schema=workspace.schema) as ol, _listening() as listener:
        options = {"log_config": None, "ws": "none", "access_log": False}
        server = BoundedServer(service(ol), **options, timeout_graceful_shutdown=1)
        thread = threading.Thread(
            target=server.run, args=([listener],), name="outlast-demo-dashboard", daemon=True
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/recovery"
        finally:
            server.should_exit = True
            thread.join(STOP_TIMEOUT_S)


def _listening() -> socket.socket:
    """The usual port, or any that is free."""
    try:
        return socket.create_server(("127.0.0.1", USUAL_PORT))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def open_browser(url: str) -> None:
    """Open the page where there is a screen. Without one, a browser would take the terminal."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
