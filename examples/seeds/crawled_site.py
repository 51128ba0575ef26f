"""A web site on a loopback port: each page links to the next two, to one before it, and home."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(pages: int, on_other_host: int) -> Iterator[str]:
    """Serve a site of so many pages, one of which has another host; its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            n = int(self.path[1:] or 0)
            links = [f"/{m or ''}" for m in (2 * n + 1, 2 * n + 2, n // 2, 0) if m < pages]
            host = "legacy.example.org" if n == on_other_host else "example.org"
            body = json.dumps({"links": links, "host": host}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
