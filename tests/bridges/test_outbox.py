"""Outboxes: messages are jobs of the caller's transaction, sent in batches."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import Any

import pytest

from outlast import Breaker, InvalidInput, InvalidOption, Outlast, Retry
from outlast.bridges import Bad, Limits, Message, SinkDown
from outlast.bridges import Retry as SendLater
from tests.bridges.own_bridges import ListSink
from tests.support import Database, aeventually
from tests.worker.working import sql, work

QUICK = Breaker(probe_first=0.1, probe_cap=0.2)
SOON = Retry(max_attempts=5, base=0.05, jitter=0.0)


async def test_a_message_is_sent_under_the_id_of_its_job(ol: Outlast) -> None:
    """R123, R011: body, key, headers and id arrive; the sink is opened and closed by the worker."""
    sink = ListSink()
    orders = ol.outbox("orders", sink)
    job = await orders.apublish({"order": 7, "who": "Zoë"}, headers={"kind": "new"})
    async with work(ol):
        await aeventually(lambda: sink.sent)
    (message,) = sink.sent
    assert (message.id, message.key, message.headers) == (job.id, None, {"kind": "new"})
    assert (
        message.body == {"order": 7, "who": "Zoë"}
        and message.raw == b'{"order":7,"who":"Zo\xc3\xab"}'
    )
    assert (sink.opened, sink.closed) == (1, 1)
    assert (await ol.ajob(job.id)).state == "succeeded"


async def test_bytes_are_sent_as_they_are(ol: Outlast) -> None:
    sink = ListSink()
    ol.outbox("raw", sink).publish(b"\x00\xff")
    async with work(ol):
        await aeventually(lambda: sink.sent)
    assert sink.sent[0].raw == b"\x00\xff"


def test_a_message_is_part_of_the_callers_transaction(ol: Outlast, database: Database) -> None:
    """R002, R123: gone with a rollback, there with the commit."""
    orders = ol.outbox("orders", ListSink())
    ol.migrate()
    for keyed in (None, "k"):
        with connection(database) as conn:
            orders.publish(1, key=keyed, conn=conn)
            conn.rollback()
        assert ol.counts()["ready"] == 0
        with connection(database) as conn:
            job = orders.publish(1, key=keyed, conn=conn)
            conn.commit()
        assert ol.job(job.id).state == "ready"
        ol.cancel(job.id)


def connection(database: Database) -> Any:
    from contextlib import closing

    if database.is_sqlite:
        return closing(sqlite3.connect(database.url.removeprefix("sqlite:///")))
    import psycopg

    return psycopg.connect(database.url)


async def test_one_bad_message_of_500_is_dead_and_499_are_sent(
    ol: Outlast, database: Database
) -> None:
    """R055, R124: dead at once, with its error, and no attempt of the others is spent."""
    sink = ListSink(lambda m: Bad("WRONGTYPE of key") if m.body == 250 else None)
    orders = ol.outbox("orders", sink)
    jobs = ol.enqueue(*(orders.message(n) for n in range(500)))
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 499 and ol.counts()["dead"] == 1)
    dead = ol.job(jobs[250].id)
    assert (dead.state, dead.attempt, dead.failures) == ("dead", 1, 1)
    assert dead.error is not None and dead.error["message"] == "WRONGTYPE of key"
    assert sorted(sink.bodies()) == [n for n in range(500) if n != 250]  # type: ignore[type-var]
    assert sql(database, "SELECT count(*) FROM {attempt}")[0][0] == 1


async def test_a_message_to_be_retried_is_retried_alone(ol: Outlast) -> None:
    """R055, R124."""
    failing = {3: 2}  # so many times

    def answer(message: Message) -> SendLater | None:
        left = failing.get(message.body, 0)
        failing[message.body] = left - 1
        return SendLater("not yet") if left > 0 else None

    sink = ListSink(answer)
    orders = ol.outbox("orders", sink, retry=SOON)
    jobs = ol.enqueue(*(orders.message(n) for n in range(10)))
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 10)
    assert [ol.job(job.id).failures for job in jobs] == [2 if n == 3 else 0 for n in range(10)]
    assert {m.id for call in sink.calls[1:] for m in call} == {jobs[3].id}, "with the same id"


async def test_a_sink_that_is_down_costs_no_attempt(ol: Outlast, database: Database) -> None:
    """R054, R124, R223: the breaker opens, one message at a time probes, all are sent."""
    down = True

    def answer(message: Message) -> None:
        if down:
            raise SinkDown("away")

    sink = ListSink(answer)
    orders = ol.outbox("orders", sink, batch=100, breaker=QUICK)
    jobs = ol.enqueue(*(orders.message(n) for n in range(1000)))
    async with work(ol):
        await aeventually(lambda: sum(one.probes for one in ol.breakers()) >= 3)
        (breaker,) = ol.breakers()
        assert (breaker.queue, breaker.task) == ("orders", "orders") and "away" in breaker.reason
        probes = [call for call in sink.calls if len(call) == 1]
        assert len(probes) >= 2 and len(sink.calls) - len(probes) <= 10, "one batch each at most"
        down = False
        await aeventually(lambda: ol.counts()["succeeded"] == 1000)
    assert {job.failures for job in ol.jobs(limit=1000)} == {0}
    assert sql(database, "SELECT count(*) FROM {attempt}")[0][0] <= 10
    assert {message.id for message in sink.sent} == {job.id for job in jobs}


async def test_a_sink_that_cannot_be_opened_is_down(ol: Outlast) -> None:
    """R054: whatever `open` raises; it is opened again by the next probe."""

    class Closed(ListSink):
        async def open(self) -> None:
            await super().open()
            if self.opened < 3:
                raise OSError("no route")

    sink = Closed()
    ol.outbox("orders", sink, breaker=QUICK).publish(1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 1)
    assert sink.opened >= 3 and ol.jobs()[0].failures == 0


async def test_messages_of_a_key_are_sent_in_order_by_several_workers(ol: Outlast) -> None:
    """R123: under failures, which hold up their own key only."""
    failed: set[int] = set()

    def answer(message: Message) -> SendLater | None:
        body: Any = message.body
        if body % 7 == 3 and body not in failed:
            failed.add(body)
            return SendLater("once")
        return None

    sink = ListSink(answer)
    orders = ol.outbox("orders", sink, batch=20, retry=SOON)
    ol.enqueue(*(orders.message(n, key=f"k{n % 5}") for n in range(100)))
    async with work(ol), work(ol), work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 100)
    for key in range(5):
        sent = [m.body for m in sink.sent if m.key == f"k{key}"]
        assert sent == list(range(key, 100, 5))
    assert {job.failures for job in ol.jobs(limit=100)} == {0, 1}


async def test_a_claim_that_came_too_late_is_not_overtaken_by_its_key(ol: Outlast) -> None:
    """R123: the heartbeat takes a claim whose response is slow for lost, and releases it. When the
    response comes, the later messages of the key wait with it."""
    sink = ListSink()
    orders = ol.outbox("orders", sink)
    jobs = ol.enqueue(*(orders.message(n, key="k") for n in range(5)))
    worker = work(ol)
    id, owner = jobs[0].id, worker.shared.state.id
    first: Any = SimpleNamespace(id=id, fence=1, claim_key=(id, 1, owner))
    assert worker.shared.in_flight.disown(first)
    async with worker:
        await aeventually(lambda: ol.counts()["succeeded"] == 5)
    assert sink.bodies() == [0, 1, 2, 3, 4]
    assert ol.job(jobs[0].id).failures == 0


async def test_messages_without_a_key_are_held_up_by_none(ol: Outlast) -> None:
    """R018: a key whose first message fails does not delay messages without a key."""
    sink = ListSink(lambda m: SendLater("never") if m.key else None)
    orders = ol.outbox("orders", sink, retry=Retry(max_attempts=9, base=60.0))
    ol.enqueue(*(orders.message(n, key="k") for n in range(10)))
    ol.enqueue(*(orders.message(n) for n in range(10)))

    def tried() -> list[Message]:
        return [m for call in sink.calls for m in call if m.key]

    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 10 and tried())
    assert len(tried()) == 1, "the first of the key, and none after it"
    assert [job.attempt for job in ol.jobs(queue="orders.keyed") if job.attempt] == [1]


async def test_the_trace_of_the_publisher_is_a_header(ol: Outlast) -> None:
    from outlast.tracing import continue_trace

    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    sink = ListSink()
    orders = ol.outbox("orders", sink)
    continue_trace(trace)
    await orders.apublish(1)
    await orders.apublish(2, headers={"traceparent": "mine"})
    async with work(ol):
        await aeventually(lambda: len(sink.sent) == 2)
    assert {m.body: m.headers for m in sink.sent} == {
        1: {"traceparent": trace},
        2: {"traceparent": "mine"},
    }


async def test_a_paused_outbox_sends_nothing_and_a_dead_message_can_be_retried(ol: Outlast) -> None:
    """R052: pause, dead letter and redrive are those of its queues."""
    bad = True
    sink = ListSink(lambda m: Bad("no") if bad else None)
    orders = ol.outbox("orders", sink)
    orders.pause()
    assert {queue.name: queue.paused for queue in ol.queues()} == {
        "orders": True,
        "orders.keyed": True,
    }
    jobs = [orders.publish(1), orders.publish(2, key="k")]
    async with work(ol, poll_max=0.05):
        orders.resume()
        await aeventually(lambda: ol.counts()["dead"] == 2)
        bad = False
        for job in jobs:
            await ol.aretry(job.id)
        await aeventually(lambda: len(sink.sent) == 2)
    assert {m.id for m in sink.sent} == {job.id for job in jobs}


async def test_a_message_can_be_the_end_of_a_job(ol: Outlast) -> None:
    sink = ListSink()
    orders = ol.outbox("orders", sink)

    @ol.task
    async def ship(order: int) -> None: ...

    ship.using(on_success=orders.message({"shipped": 7}, key="order-7")).enqueue(7)
    async with work(ol):
        await aeventually(lambda: sink.sent)
    assert sink.sent[0].key == "order-7"


async def test_a_slow_sink_is_given_up_in_time(ol: Outlast) -> None:
    """R032: a call that does not end is an outage, not the message's fault."""
    import asyncio

    class Slow(ListSink):
        async def send(self, messages: Any) -> Any:
            if not self.calls:
                self.calls.append(list(messages))
                await asyncio.sleep(60)
            return await super().send(messages)

    sink = Slow()
    ol.outbox("orders", sink, timeout=0.2, breaker=QUICK).publish(1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 1)
    assert ol.jobs()[0].failures == 0


async def test_bad_messages_are_dead_however_many_they_are(ol: Outlast) -> None:
    """R056: 40 in a row that make the sink raise; the others are sent."""

    def answer(message: Message) -> None:
        body: Any = message.body
        if body < 40:
            raise ValueError("cannot be encoded")

    sink = ListSink(answer)
    retry = Retry(max_attempts=2, base=0.05, jitter=0.0)
    orders = ol.outbox("orders", sink, retry=retry, breaker=QUICK)
    ol.enqueue(*(orders.message(n) for n in range(60)))
    async with work(ol):
        await aeventually(lambda: ol.counts()["dead"] == 40 and ol.counts()["succeeded"] == 20)
    assert {message.body for message in sink.sent} == set(range(40, 60))


class Blocking(ListSink):
    def send(self, messages: Any) -> Any:
        return [None] * len(messages)


def test_bad_input_is_refused_and_nothing_is_stored(ol: Outlast) -> None:
    """R005."""
    orders = ol.outbox("orders", ListSink())
    for wrong in (
        lambda: orders.publish({1, 2}),
        lambda: orders.publish(1, key=""),
        lambda: orders.publish(1, key=7),  # type: ignore[arg-type]
        lambda: orders.publish(1, headers={"a": 1}),  # type: ignore[dict-item]
        lambda: orders.publish(1, key="k", delay=5),
        lambda: ol.outbox("other", object()),  # type: ignore[arg-type]
        lambda: ol.outbox("other", Blocking()),
        lambda: ol.outbox("other", ListSink(), batch=0),
        lambda: ol.outbox("other", ListSink(), nonsense=1),
        lambda: Limits(items=0),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    assert sum(ol.counts().values()) == 0


def test_a_name_is_one_outbox(ol: Outlast) -> None:
    class Other(ListSink):
        def __repr__(self) -> str:
            return "another list"

    ol.outbox("orders", ListSink())
    ol.outbox("orders", ListSink())  # a module that is imported again
    with pytest.raises(InvalidOption, match="is taken by"):
        ol.outbox("orders", Other())


@pytest.mark.parametrize("key", ["k" * 300, "line\nbreak", " spaces "])
async def test_any_text_can_be_a_key(ol: Outlast, key: str) -> None:
    sink = ListSink()
    ol.outbox("orders", sink).publish(1, key=key)
    async with work(ol):
        await aeventually(lambda: sink.sent)
    assert sink.sent[0].key == key


async def test_a_failure_holds_back_its_key_in_the_batches_that_follow(ol: Outlast) -> None:
    """R123: messages of a key that were claimed together are split over batches, and the first one
    fails: the others of this process are released, and follow it."""
    first = True

    def answer(message: Message) -> SendLater | None:
        nonlocal first
        if message.key == "k" and first:
            first = False
            return SendLater("once")
        return None

    sink = ListSink(answer)
    orders = ol.outbox("orders", sink, batch=4, wait=1.0, retry=SOON)
    ol.queue("orders.split", ordered=True, lane_batch=12)  # a run that is longer than a batch
    jobs = [
        replace_queue(orders.message(n, key="k" if n != 1 else "other"), "orders.split")
        for n in range(12)
    ]
    ol.enqueue(*jobs)
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 12)
    sent = [m.body for m in sink.sent if m.key == "k"]
    assert sent == [0, *range(2, 12)]
    assert max(len(call) for call in sink.calls) <= 4
    assert [job.failures for job in ol.jobs(limit=20) if job.failures] == [1]


def replace_queue(call: Any, queue: str) -> Any:
    from outlast.model.options import Options

    return call.using(Options(queue=queue))


async def test_batches_with_keys_follow_each_other(ol: Outlast) -> None:
    """R123: of one process; a slow send is not overtaken by the next batch."""
    import asyncio

    class Slow(ListSink):
        under_way = most = 0

        async def send(self, messages: Any) -> Any:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(0.02)
            self.under_way -= 1
            return await super().send(messages)

    keyed, free = Slow(), Slow()
    orders, mails = ol.outbox("orders", keyed, batch=5), ol.outbox("mails", free, batch=5)
    ol.enqueue(*(orders.message(n, key=f"k{n % 20}") for n in range(60)))
    ol.enqueue(*(mails.message(n) for n in range(60)))
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 120)
    assert keyed.most == 1 and free.most > 1


@pytest.mark.kinds("sqlite")
def test_an_outbox_outlives_its_event_loop(ol: Outlast) -> None:
    """A program may run one loop after another: batches that wait for their turn in the second are
    not those of the first."""
    import asyncio

    class Slow(ListSink):
        async def send(self, messages: Any) -> Any:
            await asyncio.sleep(0.02)
            return await super().send(messages)

    orders = ol.outbox("orders", Slow(), batch=5)

    async def run(total: int) -> None:
        await ol.aenqueue(*(orders.message(n, key=f"k{n % 20}") for n in range(60)))
        async with work(ol):
            await aeventually(lambda: ol.counts()["succeeded"] == total)
        await ol.aclose()

    asyncio.run(run(60))
    asyncio.run(run(120))
    assert max(job.failures for job in ol.jobs(limit=200)) == 0


async def test_a_table_shows_no_fields_of_a_sink(ol: Outlast) -> None:
    """A generated `__repr__` would show passwords."""
    from dataclasses import dataclass

    class Plain(ListSink):
        __repr__ = object.__repr__

    @dataclass
    class Account(ListSink):
        password: str = "hunter2"

        def __post_init__(self) -> None:
            super().__init__()

    class Inherits(Account): ...

    for name, sink in {"a": Plain(), "b": Account(), "c": Inherits(), "d": ListSink()}.items():
        ol.outbox(name, sink)
    async with work(ol):
        await aeventually(lambda: len(ol.outboxes()) == 4)
    shown = {one.name: one.broker for one in ol.outboxes()}
    assert shown == {"a": "Plain", "b": "Account", "c": "Inherits", "d": "a list"}
