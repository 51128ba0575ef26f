"""A status API of another team: it keeps the last status of an execution that it was told.

    python status_api.py PORT

It takes `PUT /ORGANISATION/EXECUTION` with a status, and answers `true`. For some organisations it
is not as good: the first two calls for an execution are answered by a status 500, or by `false`.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from inside import note, notes

FIRST_CALLS = 2
HEALTHY: tuple[int, bool | None] = (200, True)
FAULTS: dict[str, tuple[int, bool | None]] = {"bolt": (500, None), "corp": (200, False)}


class Status(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _, organisation, execution = self.path.split("/")
        calls = sum(words[0] == execution for words in notes("status"))
        code, answer = HEALTHY
        if organisation in FAULTS and calls < FIRST_CALLS:
            code, answer = FAULTS[organisation]
        kept = "kept" if answer is True else "refused"
        note("status", execution, given["status"], kept, self.headers["idempotency-key"])
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Status).serve_forever()
