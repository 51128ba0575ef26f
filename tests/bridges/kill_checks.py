"""What holds of any broker when a process is killed, and when the broker is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outlast import Breaker, Outlast
from outlast.bridges import Message, Sink
from tests.bridges.killing import PATIENCE, Killable
from tests.support import Processes, aeventually, eventually, rounds
from tests.worker.working import work

KEYS = 4
SLOWEST_RATE = 10  # messages a second


def check_source(bridged: Killable, processes: Processes, steps: Sequence[str]) -> Tally:
    """A process is killed at each of the steps. Every message is one job."""
    return check_kills(bridged, processes, steps, sink=False)


def check_sink(bridged: Killable, processes: Processes, steps: Sequence[str]) -> Tally:
    """A process is killed at each of the steps. Every message is sent, in order per key."""
    return check_kills(bridged, processes, steps, source=False)


def check_kills(
    bridged: Killable,
    processes: Processes,
    steps: Sequence[str],
    *,
    source: bool = True,
    sink: bool = True,
) -> Tally:
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
    _finish(bridged, processes, len(received) + len(published), source=source)
    tally = Tally(len(steps))
    if source:
        tally.count_stored(bridged, received)
    if sink:
        tally.count_sent(bridged.broker.sent(), published)
    return tally


def _finish(bridged: Killable, processes: Processes, total: int, *, source: bool) -> None:
    """A worker that nothing kills does what is left."""
    worker = bridged.work(processes)
    counts = bridged.ol.counts
    eventually(
        lambda: counts()["succeeded"] == total,
        PATIENCE + total / SLOWEST_RATE,
        message=lambda: f"{counts()}, not {total}\n{worker.output()}",
    )
    if source:
        eventually(lambda: bridged.broker.left() == 0, PATIENCE, message=worker.output)
    worker.terminate()
    assert worker.wait(PATIENCE) == 0, worker.output()


@dataclass
class Tally:
    """What became of all messages."""

    kills: int
    messages: int = 0
    lost: int = 0
    twice: int = 0  # sent more than once, under the same id

    def count_stored(self, bridged: Killable, received: set[str]) -> None:
        ran = set(bridged.ran())
        assert ran == received
        keys = [job.key for job in bridged.ol.jobs(task="sync", limit=10_000)]
        assert sorted(keys) == sorted(f"in:mail:{id}" for id in received), "one job for each"
        self.messages += len(received)
        self.lost += len(received - ran)

    def count_sent(
        self, sent: Sequence[Message], published: dict[str, tuple[str | None, int]]
    ) -> None:
        ids = {message.id for message in sent}
        assert ids == set(published), "each at least once"
        assert all((one.key, one.body) == published[one.id] for one in sent), "the same on repeats"
        check_order(sent)
        self.messages += len(published)
        self.lost += len(published.keys() - ids)
        self.twice += len(sent) - len(ids)


def _put(bridged: Killable, turn: int) -> set[str]:
    per_turn = bridged.per_turn
    messages = [Message(f"m{turn * per_turn + n}", b"%d" % n) for n in range(per_turn)]
    bridged.broker.put(messages)
    return {message.id for message in messages}


def _publish(bridged: Killable, turn: int) -> dict[str, tuple[str | None, int]]:
    per_turn = bridged.per_turn
    given = [(f"k{n % KEYS}" if n % 2 else None, turn * per_turn + n) for n in range(per_turn)]
    calls = [bridged.message(body, key) for key, body in given]
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
    **options: Any,
) -> None:
    """The broker is away: no attempt is spent and nothing dead; all is sent when it is back."""
    breaker = Breaker(probe_first=0.1, probe_cap=0.5)
    orders = ol.outbox("orders", sink, breaker=breaker, **options)

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
