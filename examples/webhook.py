"""Orders are shipped, and another server is notified of each by a signed webhook.

    export STORE_SECRET=$(python -c "from outlast.webhooks.webhook import *; print(new_secret())")
    python webhook.py receive      the other server: verifies deliveries, records each order once
    python webhook.py ship 10      enqueues 10 orders
    python webhook.py work         ships and notifies until Ctrl-C
    python webhook.py show         shows the jobs, and the records of the other server

Kill any of them with `kill -9`, or start the receiver last: every order is shipped at once, and the
receiver is notified of each. It recognises a repeated delivery by its id.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from outlast import Outlast, Retry, WebhookRefused
from outlast.webhooks.webhook import verify

PORT, SECRET, NOTED = int(os.environ.get("PORT", "8643")), os.environ["STORE_SECRET"], "noted.log"
ol = Outlast("sqlite:///webhook.db")
store = ol.webhook(
    "store",
    url=f"http://127.0.0.1:{PORT}/hooks",
    secret=SECRET,
    retry=Retry(max_attempts=1000, base=0.2, cap=1.0),
)


@ol.task(tell=store)
def ship(order: int) -> str:
    return f"order {order} is on its way"


class Store(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            received = verify(self.headers, body, SECRET)
        except WebhookRefused as refused:
            self.send_error(401, str(refused))
            return
        if received.id not in noted():
            with Path(NOTED).open("a") as file:
                file.write(f"{received.id} {received.message['data']['result']}\n")
        self.send_response(204)
        self.end_headers()


def noted() -> list[str]:
    lines = Path(NOTED).read_text().splitlines() if Path(NOTED).exists() else []
    return [line.split()[0] for line in lines]


def show() -> None:
    states = [(job.task, str(job.state)) for job in ol.jobs()]
    there = {task: dict(Counter(s for t, s in states if t == task)) for task in ("ship", "store")}
    print(there | {"noted": len(noted())})


def main(words: list[str]) -> None:
    match words:
        case ["receive"]:
            HTTPServer(("127.0.0.1", PORT), Store).serve_forever()
        case ["ship", number]:
            ol.enqueue(*[ship.job(order) for order in range(int(number))])
        case ["work"]:
            ol.worker().run()
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
