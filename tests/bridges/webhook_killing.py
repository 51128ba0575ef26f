"""A program with a webhook as its sink and an HTTP source that kills itself at a named step.

Its other ends are in the test: a receiver that keeps every POST, and a sender that repeats a
message until it is told 2xx.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from outlast import Call, Outlast, Retry
from outlast.bridges import Http, Message
from outlast.service import service
from outlast.service.server import BoundedServer
from tests.bridges.killing import (
    SOURCE_STEPS,
    STORE_POINTS,
    Bridged,
    Deadly,
    fork_victims,
    sync_task,
)
from tests.service.hooking import STANDARD_SECRET, signed
from tests.support.points import arm
from tests.webhooks.receiver import Receiver

SENDERS = 4
POINTS = {**STORE_POINTS, "after receive": ("before insert_jobs",)}


class Hooked(Bridged):
    """The program, in the test and in its processes."""

    PROGRAM = "tests.bridges.webhook_killing"
    per_turn = 8  # each is a request and a connection of its own

    def __init__(self, folder: Path, step: str = "", peer: Peer | None = None) -> None:
        self.folder, self.ol = folder, Outlast()
        if peer is not None:
            self.broker = peer  # type: ignore[assignment]
        sync = sync_task(self.ol, folder)
        self.ol.source("mail", Http("standard", secret=STANDARD_SECRET), task=sync)
        self.ol.queue("orders", ordered=True)
        self.webhook = self.ol.webhook(
            "orders",
            url=os.environ["OUTLAST_TEST_RECEIVER"],
            secret=STANDARD_SECRET,
            queue="orders",
            max_crashes=1000,
            retry=Retry(max_attempts=1000, base=0.05, cap=0.2),
        )
        endpoint = self.webhook.endpoint
        object.__setattr__(endpoint, "destination", DeadlyPost(endpoint.destination, step))

    def message(self, body: int, key: str | None) -> Call[Any]:
        chosen = self.webhook if key is None else self.webhook.using(lane=key)
        return chosen.job("order", data={"key": key, "n": body})

    def server(self, step: str) -> BoundedServer:
        app: Any = DeadlyAnswer(service(self.ol), step)
        port = int(os.environ["OUTLAST_TEST_PORT"])
        return BoundedServer(app, host="127.0.0.1", port=port, log_level="warning")


class DeadlyPost(Deadly):
    """The destination of a webhook."""

    async def post(self, body: bytes, headers: dict[str, str]) -> Any:
        self.at("before send")
        answer = await self._bridge.post(body, headers)
        self.at("after send")
        return answer


class DeadlyAnswer(Deadly):
    """The service."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def deadly(event: Any) -> None:
            if event["type"] == "http.response.start":
                self.at("before acknowledge")
            await send(event)
            if event["type"] == "http.response.body" and not event.get("more_body"):
                self.at("after acknowledge")

        is_hook = scope["type"] == "http" and scope["path"].startswith("/hooks/")
        await self._bridge(scope, receive, deadly if is_hook else send)


class Peer:
    """The other ends: who sends to the source, and who is sent to."""

    def __init__(self, receiver: Receiver, url: str) -> None:
        self._receiver, self._url = receiver, url
        self._unsent: queue.Queue[Message | None] = queue.Queue()
        self._left = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send_all) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def put(self, messages: Sequence[Message]) -> None:
        with self._lock:
            self._left += len(messages)
        for one in messages:
            self._unsent.put(one)

    def left(self) -> int:
        return self._left

    def sent(self) -> list[Message]:
        found = []
        for got in self._receiver.got:
            data = got.message["data"]
            found.append(Message(got.id, json.dumps(data["n"]).encode(), data["key"]))
        return found

    def end(self) -> None:
        self._over.set()
        for _ in self._threads:
            self._unsent.put(None)
        for thread in self._threads:
            thread.join()

    def _send_all(self) -> None:
        with httpx.Client(trust_env=False, timeout=30) as client:
            while (one := self._unsent.get()) is not None:
                while not self._send(client, one):
                    if self._over.wait(0.02):
                        return
                with self._lock:
                    self._left -= 1

    def _send(self, client: httpx.Client, message: Message) -> bool:
        headers = signed("standard", message.id, message.raw)
        try:
            told = client.post(self._url, content=message.raw, headers=headers)
        except httpx.TransportError:
            return False
        return told.is_success


def _work(folder: Path, step: str) -> None:
    """The service, a worker, or both where nothing is to be killed."""
    for point in POINTS.get(step, ()):
        arm(point)
    hooked = Hooked(folder, step)
    if step in SOURCE_STEPS:
        hooked.server(step).run()
    if step:
        hooked.ol.worker().run()
    else:
        server = Hooked(folder).server("")
        serving = threading.Thread(target=server.run)
        serving.start()
        hooked.ol.worker().run()
        server.should_exit = True
        serving.join()
    sys.exit(0)


if __name__ == "__main__":
    from outlast.worker.logs import set_up

    set_up("info")
    given = Path(os.environ["OUTLAST_TEST_FOLDER"])
    if sys.argv[1:] == ["victims"]:
        fork_victims(given, _work)
    _work(given, "")
