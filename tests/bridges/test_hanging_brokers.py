"""A broker that hangs: it takes connections, and says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from outlast import Outlast
from outlast.bridges import Message, source_loop
from tests.bridges.kill_checks import check_away
from tests.support import aeventually
from tests.support.brokers import NatsServer
from tests.support.redis import RedisServer
from tests.worker.working import work

pytestmark = pytest.mark.kinds("sqlite")


@pytest.fixture(params=["redis", "nats"])
def hanging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of the test's own, and what the kill tests know of its broker."""
    server: Any = RedisServer() if request.param == "redis" else NatsServer()
    broker = import_module(f"tests.bridges.{request.param}_broker")
    server.start()
    try:
        monkeypatch.setenv(f"OUTLAST_TEST_{request.param.upper()}", server.url)
        if request.param == "nats":
            broker.create("orders", "mail")
        yield server, broker
    finally:
        server.resume()
        server.destroy()


def test_an_outbox_waits_for_a_broker_that_hangs(ol: Outlast, hanging: Any) -> None:
    """R054, R223: no attempt, no dead message, order per key; each is sent when it goes on."""
    server, broker = hanging
    check_away(ol, broker.sink(), server.pause, server.resume, broker.sent, timeout=1.0)


async def test_a_source_waits_for_a_broker_that_hangs(
    ol: Outlast, hanging: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R014, R182: it is told, connects anew, and every message is one job."""
    server, broker = hanging
    for name in ("RECEIVE_EXTRA_S", "OPEN_WAIT_S", "ACKNOWLEDGE_WAIT_S"):
        monkeypatch.setattr(source_loop, name, 1.0)
    seen: list[int] = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    ol.source("mail", broker.source(), task=sync, wait=1)
    await asyncio.to_thread(broker.put, [Message("a", b"1")])
    async with work(ol):
        await aeventually(lambda: seen == [1])
        server.pause()
        await aeventually(lambda: ol.sources()[0].error)
        server.resume()
        await asyncio.to_thread(broker.put, [Message("b", b"2")])
        await aeventually(lambda: seen == [1, 2])
    assert len(ol.jobs()) == 2
