"""What holds of any broker when a process is killed, and when the broker is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from outlast import Breaker, Outlast
from outlast.bridges import Message, Sink
from tests.bridges.killing import PATIENCE, Bridged
from tests.support import Processes, aeventually, eventually, rounds
from tests.worker.working import work

KEYS = 4


def check_source(bridged: Bridged, processes: Processes, steps: Sequence[str]) -> None:
    """A process is killed at each of the steps. Every message is one job."""
    check_kills(bridged, processes, steps, sink=False)


def check_sink(bridged: Bridged, processes: Processes, steps: Sequence[str]) -> None:
    """A process is killed at each of the steps. Every message is sent, in order per key."""
    check_kills(bridged, processes, steps, source=False)


def check_kills(
    bridged: Bridged,
    processes: Processes,
    steps: Sequence[str],
    *,
    source: bool = True,
    sink: bool = True,
) -> None:
    """Both, or one of them."""
    received: set[str] = set()
    published: dict[str, tuple[str | None, int]] = {}
    victims = bridged.victims(processes)
    for turn in rounds(len(steps), steps[0]):
        if source:
            received |= _put(bridged, turn)
        if sink:
            published |= _publish(bridged, turn)
        victims.kill(steps[turn])
    victims.end()
    worker = bridged.work(processes)
    total = len(received) + len(published)
    counts = bridged.ol.counts
    eventually(
        lambda: counts()["succeeded"] == total,
        PATIENCE,
        message=lambda: f"{counts()}, not {total}\n{worker.output()}",
    )
    if source:
        eventually(lambda: bridged.broker.left() == 0, PATIENCE, message=worker.output)
    worker.terminate()
    assert worker.wait(PATIENCE) == 0, worker.output()
    if source:
        assert set(bridged.ran()) == received
        keys = [job.key for job in bridged.ol.jobs(task="sync", limit=10_000)]
        assert sorted(keys) == sorted(f"in:mail:{id}" for id in received), "one job for each"
    if sink:
        sent = bridged.broker.sent()
        assert {message.id for message in sent} == set(published), "each at least once"
        assert all((one.key, one.body) == published[one.id] for one in sent), "the same on repeats"
        check_order(sent)


def _put(bridged: Bridged, turn: int) -> set[str]:
    messages = [Message(f"m{turn * 30 + n}", b"%d" % n) for n in range(30)]
    bridged.broker.put(messages)
    return {message.id for message in messages}


def _publish(bridged: Bridged, turn: int) -> dict[str, tuple[str | None, int]]:
    given = [(f"k{n % KEYS}" if n % 2 else None, turn * 40 + n) for n in range(40)]
    calls = [bridged.outbox.message(body, key=key) for key, body in given]
    return dict(zip((job.id for job in bridged.ol.enqueue(*calls)), given, strict=True))


def check_order(sent: Sequence[Message]) -> None:
    for key in {message.key for message in sent} - {None}:
        first = list(dict.fromkeys(one.body for one in sent if one.key == key))
        assert first == sorted(first), f"{key} is in order"


def check_away(
    ol: Outlast,
    sink: Sink,
    stop: Callable[[], Any],
    start: Callable[[], Any],
    sent: Callable[[], Sequence[Message]],
    number: int = 200,
) -> None:
    """The broker is away: no attempt is spent and nothing dead; all is sent when it is back."""
    breaker = Breaker(probe_first=0.1, probe_cap=0.5)
    orders = ol.outbox("orders", sink, breaker=breaker)

    async def main() -> None:
        stop()
        await ol.aenqueue(
            *(orders.message(n, key=f"k{n % KEYS}" if n % 2 else None) for n in range(number))
        )
        async with work(ol):
            await aeventually(lambda: len(ol.breakers()) == 2, PATIENCE)
            counts = ol.counts()
            assert (counts["dead"], counts["succeeded"]) == (0, 0)
            start()
            await aeventually(lambda: ol.counts()["succeeded"] == number, PATIENCE)

    asyncio.run(main())
    assert max(job.failures for job in ol.jobs(limit=number)) == 0, "no attempt is spent"
    found = sent()
    assert {one.body for one in found} == set(range(number))
    check_order(found)


async def check_round_trip(sink: Any, source: Any) -> None:
    """To the same place: what is received is what was sent; handed back, it comes again at once;
    acknowledged, it does not."""
    messages = [
        Message("plain", b'{"n":1}'),
        Message("keyed", b"2", "key", {"traceparent": "00-1-2-03", "kind": "new"}),
        Message(
            "odd", '"ü"'.encode(), "kéy\n:", {"é :": " x\r\ny ", "empty": "", "outlast-id": "?"}
        ),
        Message("binary", b"\xff\x00\x01", headers={f"h{n}": "v" for n in range(50)}),
    ]
    await sink.open()
    await source.open()
    try:
        assert await sink.send(messages) == [None] * 4
        first = await _received(source, 4)
        assert sorted(first, key=_id) == sorted(messages, key=_id)
        await source.hand_back(first)
        async with asyncio.timeout(20):  # well below the time after which it comes by itself
            again = await _received(source, 4)
        assert sorted(again, key=_id) == sorted(messages, key=_id)
        await source.acknowledge(again)
        await _eventually_zero(source)
        assert list(await source.receive(10, 0.5)) == []
    finally:
        await sink.close()
        await source.close()


async def _received(source: Any, number: int) -> list[Message]:
    found: dict[str, Message] = {}
    while len(found) < number:
        for one in await source.receive(10, 10.0):
            found[one.id] = one
    return list(found.values())


async def _eventually_zero(source: Any) -> None:
    async def none_waits() -> bool:
        return await source.lag() == 0

    await aeventually(none_waits)


async def check_cancelled_receive(source: Any, put: Callable[[Sequence[Message]], None]) -> None:
    """R182: a stop does not wait for a long poll, and nothing is lost by it."""
    await source.open()
    try:
        receiving = asyncio.ensure_future(source.receive(10, 20.0))
        await asyncio.wait([receiving], timeout=0.3)  # it has begun
        receiving.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait([receiving])
        assert receiving.cancelled()
        await asyncio.to_thread(put, [Message("after", b"1")])
        (message,) = await _received(source, 1)
        assert message.id == "after"
        await source.acknowledge([message])
    finally:
        await source.close()


def _id(message: Message) -> str:
    return message.id
