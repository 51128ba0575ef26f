"""Streams on which nothing happens, behind a proxy that cuts what is idle, as balancers do."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from outlast import Outlast
from outlast.model.settings import ServiceSettings
from outlast.remote import RemoteWorker
from outlast.verify.faults.proxied_connection import Upstream
from tests.service.following import Follower, claimed
from tests.service.serving import serving
from tests.support import Proxy, aeventually
from tests.support.app import SLACK

AT_ONCE = 2.0 + SLACK  # seconds


class Impatient(Proxy):
    """Cuts a connection on which nothing has passed for so long, in either direction."""

    def __init__(self, upstream: Upstream, patience: float) -> None:
        super().__init__(upstream)
        self.cuts: list[int] = []  # which connections, by their number
        self._patience = patience
        self._passed: dict[int, float] = {}
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self.inspect = self._note

    def _note(self, line: int, data: bytes, answer: bool) -> bytes:
        self._passed[line] = time.monotonic()
        return data

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            now = time.monotonic()
            for line in self._snapshot():
                if now - self._passed.setdefault(line.number, now) > self._patience:
                    self.cuts.append(line.number)
                    line.reset()

    def __enter__(self) -> Self:
        self._watching.start()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._watching.join(5)
        super().__exit__(kind, error, trace)


class Idle(NamedTuple):
    seconds: float
    patience: float  # of the proxy
    settings: ServiceSettings


SHORT = Idle(3.0, 1.0, ServiceSettings(keep_alive=0.2, events_keep_alive=0.2, remote_lease=2.0))
# The settings as they come; 60 seconds is what load balancers have where nobody chose.
TEN_MINUTES = Idle(600.0, 60.0, ServiceSettings())


@pytest.mark.quiet
@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    "idle",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(
            TEN_MINUTES, id="ten-minutes", marks=[pytest.mark.campaign, pytest.mark.timeout(900)]
        ),
    ],
)
async def test_idle_streams_outlast_a_proxy_that_cuts_what_is_idle(
    ol: Outlast, tmp_path: Path, idle: Idle
) -> None:
    """R144: signs of life keep them open, a stream that has lived long enough is followed by the
    next; and what comes at the end arrives at once."""

    @ol.task
    def work() -> int:
        return 7

    held = claimed(ol, queue="elsewhere")
    with (
        serving(ol, idle.settings) as served,
        Impatient(_place(served.url), idle.patience) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)),  # nothing is ever sent on it
    ):
        url = f"http://127.0.0.1:{proxy.port}"
        await aeventually(lambda: proxy.accepted == 1)
        followers = [
            Follower(f"{url}/api/v1/events?kind=cancel", served.token("read")),
            Follower(f"{url}/api/v1/jobs/{held.id}/events?kind=cancel", served.token("read")),
        ]
        following = [
            asyncio.create_task(one.follow(1, timeout=idle.seconds + 60)) for one in followers
        ]
        token, feeder = served.token("work"), served.app.service.broadcaster
        async with RemoteWorker(url, token, ol, ["default"], spool=tmp_path) as worker:
            await aeventually(lambda: worker.connected and feeder.subscribers == 2)
            await asyncio.sleep(idle.seconds)  # that is what this is about
            assert 1 in proxy.cuts, "the proxy cuts connections that are idle"
            assert not any(one.done() for one in following), "a stream did not stay open"
            since = time.monotonic()
            job = await work.aenqueue()
            assert await ol.aresult(job.id, timeout=10) == 7
            await ol.acancel(held.id)
            await asyncio.gather(*following)
            took = time.monotonic() - since
    print(f"{proxy.accepted} connections, {len(proxy.cuts)} cut for being idle, {took:.2f} s")
    assert took < AT_ONCE
    assert [one.kinds[-1] for one in followers] == ["cancel", "cancel"]


def _place(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)
