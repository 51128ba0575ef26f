"""Sources: a message becomes one job, and is acknowledged once that is committed."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from outlast import Context, InvalidOption, Outlast, RetentionSettings, Secret, StoreUnavailable
from outlast.bridges import Message, source_loop
from outlast.model.message import message_of, undecodable
from tests.bridges.own_bridges import ListSink, QueueSource
from tests.support import Database, aeventually
from tests.worker.working import Spy, work


def message(id: str, body: object = None, **given: Any) -> Message:
    return Message(id, json.dumps(body).encode(), **given)


async def test_a_message_becomes_a_job_and_is_acknowledged(ol: Outlast) -> None:
    """R026, R123: the body is the argument; id, key, headers and raw body are in the context."""
    seen: list[tuple[Any, Message | None]] = []

    @ol.task
    async def sync(body: dict[str, int], ctx: Context) -> None:
        seen.append((body, ctx.message))

    source = QueueSource(message("m1", {"inbox": 7}, key="k", headers={"kind": "push"}))
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: seen and source.acknowledged)
    ((body, told),) = seen
    assert body == {"inbox": 7}
    assert told == Message("m1", b'{"inbox": 7}', "k", {"kind": "push"})
    assert source.acknowledged == ["m1"] and (source.opened, source.closed) == (1, 1)
    (job,) = ol.jobs()
    assert job.key == "in:mail:m1"


async def test_a_message_that_comes_again_is_acknowledged_and_not_run_again(ol: Outlast) -> None:
    """R022, R130: whatever else the broker says of it by then."""
    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    source = QueueSource(message("m1", 1))
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: seen and source.acknowledged)
        source.put(message("m1", 1, headers={"delivery": "2"}), message("m2", 2))
        await aeventually(lambda: len(source.acknowledged) == 3)
        await aeventually(lambda: len(seen) == 2)
    assert seen == [1, 2]
    (state,) = ol.sources()
    assert (state.received, state.stored, state.duplicates) == (3, 2, 1)


async def test_a_message_that_cannot_be_decoded_is_a_dead_job_with_its_raw_body(
    ol: Outlast,
) -> None:
    """R013: acknowledged, and the others go on."""

    @ol.task
    async def sync(body: int) -> None: ...

    bad = [Message("text", b"{broken"), Message("bytes", b"\xff\x00"), message("type", ["no"])]
    source = QueueSource(*bad, message("good", 1))
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["dead"] == 3 and ol.counts()["succeeded"] == 1)
    assert sorted(source.acknowledged) == ["bytes", "good", "text", "type"]
    dead = {job.args["$message"]["id"]: job for job in ol.jobs(state="dead")}
    assert dead["text"].args["$message"]["raw"] == "{broken"
    assert "cannot be decoded" in (dead["text"].error or {})["message"]
    assert dead["bytes"].args["$message"]["raw64"] == "/wA="
    assert dead["type"].args["body"] == ["no"] and dead["type"].attempt == 1
    (state,) = ol.sources()
    assert state.undecodable == 3


async def test_a_message_that_is_too_large_is_a_dead_job_with_the_start_of_its_body(
    ol: Outlast,
) -> None:
    @ol.task
    async def sync(body: str) -> None: ...

    source = QueueSource(message("large", "x" * 2_000_000))
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["dead"] == 1)
    told = ol.jobs(state="dead")[0].args["$message"]
    assert told["cut_from"] == 2_000_002 and told["raw"].startswith('"xxx')
    assert len(told["raw"]) > 0.99 * ol.max_args_bytes, "as much as fits"


async def test_a_large_message_that_fits_once_is_stored_once(ol: Outlast) -> None:
    """Arguments and raw body together would be too large: the body is not kept beside them."""
    seen: list[tuple[str, bytes]] = []

    @ol.task
    async def sync(body: str, ctx: Context) -> None:
        assert ctx.message is not None
        seen.append((body, ctx.message.raw))

    @ol.task
    async def strict(body: int) -> None: ...

    large = "x" * (ol.max_args_bytes * 6 // 10)
    ol.source("mail", QueueSource(message("large", large)), task=sync, wait=1)
    ol.source("other", QueueSource(message("large", large)), task=strict, wait=1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["dead"] == 1 and ol.counts()["succeeded"] == 1)
    assert seen == [(large, b"")]
    assert ol.jobs(state="dead")[0].args["body"] == large


@pytest.mark.parametrize("raw", [b"x" * 5000, "é\n".encode() * 2000, b"\xff" * 5000])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_as_much_of_a_raw_body_is_kept_as_fits(raw: bytes, ascii_only: bool) -> None:
    text = undecodable(Message("m", raw), "bad", 4000, ascii_only=ascii_only)
    kept = message_of(text)
    assert 3900 < len(text) <= 4000
    assert kept is not None and kept.raw and raw.startswith(kept.raw)
    short = undecodable(Message("m", raw[:1000]), "bad", 8000, ascii_only=ascii_only)
    assert "cut_from" not in short


async def test_a_task_with_secrets_keeps_no_copy_of_them(ol: Outlast, database: Database) -> None:
    seen = []

    @ol.task
    async def sync(body: Annotated[str, Secret]) -> None:
        seen.append(body)

    ol.source("mail", QueueSource(message("m", "hunter2")), task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: seen)
    assert seen == ["hunter2"] and "hunter2" not in json.dumps(ol.jobs()[0].as_json())


async def test_other_formats_have_a_decoder(ol: Outlast) -> None:
    seen = []

    @ol.task
    async def sync(line: list[str]) -> None:
        seen.append(line)

    source = QueueSource(Message("m", b"a;b"))
    ol.source("csv", source, task=sync, wait=1, decode=lambda m: m.raw.decode().split(";"))
    async with work(ol):
        await aeventually(lambda: seen)
    assert seen == [["a", "b"]]


async def test_errors_of_the_broker_are_waited_out_and_told_once_a_try(
    ol: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    """R014: 1 s, then longer; a success resets it."""
    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    source = QueueSource(message("m", 1))
    source.failures = [ConnectionError("away"), ConnectionError("away")]
    ol.source("mail", source, task=sync, wait=1)
    began = time.monotonic()
    async with work(ol):
        await aeventually(lambda: any(one.error for one in ol.sources()))
        assert "away" in (ol.sources()[0].error or "")
        await aeventually(lambda: seen)
    assert (1.0 + 2.0) * 2 / 3 <= time.monotonic() - began < 10
    lines = [r.message for r in caplog.records if "source mail failed" in r.message]
    assert len(lines) == 2 and source.receives >= 3 and source.opened == 3


async def test_what_the_database_does_not_take_is_handed_back(ol: Outlast) -> None:
    """R123: and received again when it does."""

    @ol.task
    async def sync(body: int) -> None: ...

    source = QueueSource(message("m", 1))
    ol.source("mail", source, task=sync, wait=1)
    spy = Spy(ol)
    spy.refuse("insert_jobs", StoreUnavailable(reason="gone"))
    async with work(ol):
        await aeventually(lambda: source.handed_back)
        assert source.acknowledged == []
        await aeventually(lambda: source.acknowledged)
        await aeventually(lambda: ol.counts()["succeeded"] == 1)


async def test_a_worker_that_stops_receives_nothing_more(ol: Outlast) -> None:
    """R182: a long poll does not delay it."""

    @ol.task
    async def sync(body: int) -> None: ...

    source = QueueSource()
    ol.source("mail", source, task=sync, wait=60)
    began = time.monotonic()
    async with work(ol):
        await aeventually(lambda: source.receives)
    assert time.monotonic() - began < 10 and source.closed == 1


@pytest.mark.parametrize("call", ["open", "receive", "acknowledge"])
async def test_a_broker_that_does_not_answer_does_not_keep_the_worker(
    ol: Outlast, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R182."""

    @ol.task
    async def sync(body: int) -> None: ...

    source, hung = QueueSource(message("m", 1)), asyncio.Event()

    async def hang(*given: object) -> Any:
        hung.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(source, call, hang)
    ol.source("mail", source, task=sync, wait=1)
    async with asyncio.timeout(40), work(ol):
        await hung.wait()
        began = time.monotonic()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("call", ["open", "receive", "acknowledge"])
async def test_calls_of_a_source_have_a_time_limit(
    ol: Outlast, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R014: one that hangs is an error, which is told, and waited out."""
    for name in ("OPEN_WAIT_S", "RECEIVE_EXTRA_S", "ACKNOWLEDGE_WAIT_S"):
        monkeypatch.setattr(source_loop, name, 0.2)

    @ol.task
    async def sync(body: int) -> None: ...

    source = QueueSource(message("m", 1))
    plain, hangs = getattr(source, call), True

    async def hang(*given: object) -> Any:
        if hangs:
            await asyncio.Event().wait()
        return await plain(*given)

    monkeypatch.setattr(source, call, hang)
    ol.source("mail", source, task=sync, wait=0.1)
    async with work(ol):
        await aeventually(lambda: any(one.error for one in ol.sources()))
        assert f"{call} of the source did not end" in (ol.sources()[0].error or "")
        hangs = False
        source.put(message("m", 1))  # a broker delivers again what was not acknowledged
        await aeventually(lambda: source.acknowledged)
        await aeventually(lambda: ol.counts()["succeeded"] == 1)


async def test_messages_that_arrive_with_the_stop_are_handed_back(ol: Outlast) -> None:
    """R182: at once, so that another worker gets them now."""

    @ol.task
    async def sync(body: int) -> None: ...

    class Late(QueueSource):
        async def receive(self, limit: int, wait: float) -> Any:
            try:
                return await super().receive(limit, wait)
            except asyncio.CancelledError:
                self.put(message("m", 1))
                return await super().receive(limit, wait)

    source = Late()
    ol.source("mail", source, task=sync, wait=60)
    async with work(ol):
        await aeventually(lambda: source.receives)
    assert source.handed_back == ["m"] and source.acknowledged == [] and ol.jobs() == []


async def test_a_full_queue_is_not_fed(ol: Outlast) -> None:
    """R009: no polling while it holds as many ready jobs as it may."""
    ol.queue("ingest", most_waiting=5)

    @ol.task(queue="ingest")
    async def sync(body: int) -> None: ...

    source = QueueSource(*(message(str(n), n) for n in range(20)))
    ol.source("mail", source, task=sync, wait=1)
    async with work(ol, queues=["other"]):
        await aeventually(lambda: ol.counts()["ready"] == 5)
        received = source.receives
        await asyncio.sleep(1.5)  # nothing is to happen
        assert source.receives == received and ol.counts()["ready"] == 5
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 20, timeout=60)


async def test_a_worker_may_leave_the_sources_to_others(ol: Outlast) -> None:
    @ol.task
    async def sync(body: int) -> None: ...

    source = QueueSource(message("m", 1))
    ol.source("mail", source, task=sync)
    job = sync.enqueue(1)
    async with work(ol, sources=False):
        await aeventually(lambda: ol.job(job.id).final)
    assert source.opened == 0


async def test_two_workers_share_a_source(ol: Outlast) -> None:
    """Of one event loop: it is opened once, and closed with the last."""

    @ol.task
    async def sync(body: int) -> None: ...

    source = QueueSource(*(message(str(n), n) for n in range(50)))
    ol.source("mail", source, task=sync, wait=1, batch=5)
    async with work(ol), work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 50)
    assert (source.opened, source.closed) == (1, 1) and len(ol.jobs(limit=100)) == 50


async def test_an_object_that_is_used_twice_is_open_once(ol: Outlast) -> None:
    """By two outboxes and a source: the first that leaves does not close it for the others."""

    class Both(QueueSource, ListSink):
        def __init__(self) -> None:
            ListSink.__init__(self)
            QueueSource.__init__(self)

    @ol.task
    async def sync(body: int) -> None: ...

    both = Both()
    orders, mails = ol.outbox("orders", both), ol.outbox("mails", both)
    ol.source("mail", both, task=sync, wait=1)
    both.put(message("m", 1))
    async with work(ol):
        async with work(ol, sources=False):
            ol.enqueue(orders.message(1), mails.message(2))
            await aeventually(lambda: ol.counts()["succeeded"] == 3)
        assert (both.opened, both.closed) == (1, 0)
    assert (both.opened, both.closed) == (1, 1)


def test_keys_must_outlast_redeliveries(database: Database) -> None:
    """R022: refused if ended jobs are kept shorter than the broker redelivers."""

    class Long(QueueSource):
        redelivery = 14 * 86400.0

    with Outlast(database.url, schema=database.schema) as ol:

        @ol.task
        async def sync(body: int) -> None: ...

        with pytest.raises(InvalidOption, match="keep_succeeded"):
            ol.source("mail", Long(), task=sync)
    kept = RetentionSettings(keep_succeeded=15 * 86400.0, keep_cancelled=15 * 86400.0)
    with Outlast(database.url, schema=database.schema, retention=kept) as ol:

        @ol.task
        async def sync2(body: int) -> None: ...

        ol.source("mail", Long(), task=sync2)


async def test_a_queue_that_keeps_its_jobs_too_short_is_not_fed(ol: Outlast) -> None:
    @ol.task(queue="mail")
    async def sync(body: int) -> None: ...

    source = QueueSource(message("m", 1))
    ol.source("mail", source, task=sync, wait=1)
    ol.keep("mail", 10)
    async with work(ol):
        await aeventually(lambda: ol.sources() and ol.sources()[0].error)
    assert "outlast keep mail --undo" in (ol.sources()[0].error or "") and source.receives == 0


def test_bad_declarations_are_refused(ol: Outlast) -> None:
    @ol.task
    async def sync(body: int) -> None: ...

    for wrong in (
        lambda: ol.source("mail", object(), task=sync),  # type: ignore[arg-type]
        lambda: ol.source("mail", QueueSource(), task=print),  # type: ignore[arg-type]
        lambda: ol.source("mail", QueueSource(), task=sync, batch=0),
        lambda: ol.source("mail", QueueSource(), task=sync, wait=600),
        lambda: ol.source("mail", QueueSource(), task=sync.using(key="one")),
    ):
        with pytest.raises(InvalidOption):
            wrong()
    ol.source("mail", QueueSource(), task=sync)
    with pytest.raises(InvalidOption, match="is taken by"):
        ol.source("mail", QueueSource(), task=ol.task(name="other")(lambda body: None))


async def test_a_table_shows_no_fields_of_a_source(ol: Outlast) -> None:
    """R198: a generated `__repr__` would show passwords."""

    @dataclass
    class Account(QueueSource):
        password: str = "hunter2"

        def __post_init__(self) -> None:
            super().__init__()

    @ol.task
    async def sync(body: object) -> None: ...

    ol.source("mail", Account(), task=sync)
    async with work(ol):
        await aeventually(lambda: [one.broker for one in ol.sources()] == ["Account"])
