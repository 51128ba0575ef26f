"""A stand-in for a model provider: streamed chat completions on loopback, in OpenAI's format.

    python model_server.py 8900        then OPENAI_BASE_URL=http://127.0.0.1:8900/v1

It chooses the next tool by the number of tools that were used, and words at random, as models do:
a call that is repeated gives another text.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN_EVERY_S = float(os.environ.get("TOKEN_EVERY", "0.02"))
TOKENS = 40  # of each response
WORDS = "well so now then indeed surely let me see the lamp is was order and I look at it".split()
PLAN: list[tuple[str, dict[str, Any]]] = [
    ("look_up_order", {"order": 1001}),
    ("refund", {"order": 1001, "cents": 4200}),
    ("write_to_customer", {"text": "We have refunded 42.00."}),
]


def deltas(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The parts of a response, and at last the reason of its end."""
    yield {"role": "assistant", "content": ""}, None
    for _ in range(TOKENS):
        yield {"content": random.choice(WORDS) + " "}, None
    used = sum(message["role"] == "tool" for message in messages)
    if used == len(PLAN):
        yield {"content": "Done."}, None
        yield {}, "stop"
        return
    name, args = PLAN[used]
    text = json.dumps(args)
    call = {"index": 0, "id": f"call_{secrets.token_hex(8)}", "type": "function"}
    yield {"tool_calls": [call | {"function": {"name": name, "arguments": ""}}]}, None
    for half in (text[:5], text[5:]):  # arguments come in pieces
        yield {"tool_calls": [{"index": 0, "function": {"arguments": half}}]}, None
    yield {}, "tool_calls"


class Completions(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        if self.path != "/v1/chat/completions":
            return self.send_error(404)
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        base = {
            "id": f"chatcmpl-{secrets.token_hex(8)}", "object": "chat.completion.chunk",
            "created": int(time.time()), "model": asked["model"],
        }  # fmt: skip
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            for delta, end in deltas(asked["messages"]):
                choice = {"index": 0, "delta": delta, "finish_reason": end}
                self.send(json.dumps(base | {"choices": [choice]}))
                time.sleep(TOKEN_EVERY_S)
            self.send("[DONE]")
        except ConnectionError:
            pass  # a worker was killed in the middle

    def send(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None: ...


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Completions).serve_forever()
