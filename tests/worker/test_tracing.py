"""One trace from whoever enqueued a job to all that followed; nothing where nobody traces."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from outlast import Context, KeyConflict, Outlast, Permanent, Retry, tracing
from outlast.remote import RemoteWorker
from outlast.tracing import traced
from tests.service.serving import serving
from tests.support import aeventually
from tests.worker.test_context import refuses_late_calls
from tests.worker.working import ended, sql, work

pytestmark = pytest.mark.kinds("sqlite")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Recorded(InMemorySpanExporter):
    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.name == name]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """A program that traces. OpenTelemetry lets a process choose a provider once: here, for each
    test."""
    provider, recorded = TracerProvider(), Recorded()
    provider.add_span_processor(SimpleSpanProcessor(recorded))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(tracing, "_next_check_at", 0.0)
    yield recorded
    provider.shutdown()


def ids(header: str | None) -> tuple[int, int]:
    _, trace_id, span_id, _ = str(header).split("-")
    return int(trace_id, 16), int(span_id, 16)


async def test_the_row_carries_the_trace_to_the_attempt_and_on(
    ol: Outlast, spans: Recorded
) -> None:
    """R197: enqueue, run, what its handler enqueues in either way, and its hook: one trace, in
    which each comes under what caused it."""

    @ol.task
    async def leaf(n: int) -> int:
        return n

    @ol.task
    def root(ctx: Context) -> None:
        ctx.enqueue(leaf.job(1))
        leaf.enqueue(2)

    with trace.get_tracer("test").start_as_current_span("request") as request:
        first = await root.using(on_success=leaf.job(3)).aenqueue()
    asked = request.get_span_context()
    [sent] = spans.named("enqueue root")
    assert sent.kind is SpanKind.PRODUCER and sent.parent is not None and sent.context is not None
    assert sent.parent.span_id == asked.span_id
    assert ids(first.trace) == (asked.trace_id, sent.context.span_id)
    async with work(ol):
        await ended(ol, first)
        [run] = spans.named("run root")
        assert run.parent is not None and run.context is not None
        assert run.parent.span_id == sent.context.span_id
        leaves = await ol.ajobs(task="leaf")
        for leaf_job in leaves:
            await ended(ol, leaf_job)
        parents = {job.args["n"]: ids(job.trace) for job in await ol.ajobs(task="leaf")}
    assert {n: of for n, (of, _) in parents.items()} == dict.fromkeys((1, 2, 3), asked.trace_id)
    assert parents[1] == parents[3] == (asked.trace_id, run.context.span_id)
    [inner] = spans.named("enqueue leaf")
    assert inner.parent is not None and inner.context is not None
    assert inner.parent.span_id == run.context.span_id
    assert parents[2] == (asked.trace_id, inner.context.span_id)
    assert len(spans.named("run leaf")) == 3
    assert {span.context.trace_id for span in spans.named("run leaf") if span.context} == {
        asked.trace_id
    }


async def test_a_span_says_whose_it_is_and_nothing_of_what_it_was_given(
    ol: Outlast, spans: Recorded
) -> None:
    """R198: neither the arguments nor what an error quotes of them."""

    @ol.task(queue="q")
    async def fails(card: str) -> None:
        raise Permanent(f"{card} was refused")

    job = await fails.using(tenant="acme").aenqueue(card="4111-1111")
    async with work(ol):
        await ended(ol, job)
    [sent] = spans.named("enqueue fails")
    assert sent.parent is None
    assert dict(sent.attributes or {}) == {
        "outlast.task": "fails", "outlast.queue": "q", "outlast.job": job.id,
        "outlast.tenant": "acme",
    }  # fmt: skip
    [span] = spans.named("run fails")
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is not None and sent.context is not None
    assert span.parent.span_id == sent.context.span_id
    assert dict(span.attributes or {}) == {
        "outlast.task": "fails", "outlast.queue": "q", "outlast.job": job.id, "outlast.attempt": 1,
        "outlast.fence": 1, "outlast.tenant": "acme",
        "error.type": "outlast.model.errors.Permanent",
    }  # fmt: skip
    assert span.status.status_code is StatusCode.ERROR
    [event] = span.events
    told = dict(event.attributes or {})
    assert (event.name, told["exception.type"]) == ("exception", "outlast.model.errors.Permanent")
    assert "in fails" in str(told["exception.stacktrace"])
    assert "4111" not in span.to_json() + sent.to_json()


async def test_hooks_and_webhooks_come_under_the_attempt_that_fired_them(
    ol: Outlast, spans: Recorded
) -> None:
    """R197: on_success, on_dead and on_cancel, of async, sync and batch handlers: under the last
    attempt. A job that never ran has its hooks under its enqueue."""

    @ol.task
    async def hook(n: int) -> None: ...

    @ol.task
    async def good() -> None: ...

    @ol.task
    async def tells() -> None: ...

    @ol.task
    def completes(ctx: Context) -> None:
        with ctx.completing(1):
            pass

    @ol.task(max_attempts=2, retry=Retry(base=0.01))
    def bad() -> None:
        raise ValueError

    @ol.task
    async def endless(ctx: Context) -> None:
        await asyncio.sleep(60)

    @ol.task(batch=10, wait=0.01)
    async def many(items: list[int]) -> None: ...

    jobs = {
        "run good": await good.using(on_success=hook.job(1)).aenqueue(),
        "run completes": await completes.using(on_success=hook.job(2)).aenqueue(),
        "run bad": await bad.using(on_dead=hook.job(3)).aenqueue(),
        "run endless": await endless.using(on_cancel=hook.job(4)).aenqueue(),
        "run many": await many.using(on_success=hook.job(5)).aenqueue(7),
    }
    billing = ol.webhook("billing", url="http://127.0.0.1:9/", secret="whsec_" + "c2VjcmV0" * 6)
    told = await tells.using(tell=billing).aenqueue()
    queued = await good.using(delay=3600, on_cancel=hook.job(6)).aenqueue()
    await ol.acancel(queued.id)
    async with work(ol):
        stops = jobs["run endless"].id
        await aeventually(lambda: ol.job(stops).state == "running")
        await ol.acancel(stops)
        for job in jobs.values():
            await ended(ol, job)
        await ended(ol, told)
        hooks = {job.args["n"]: job for job in await ol.ajobs(task="hook")}
        [delivery] = await ol.ajobs(task="billing")
    assert set(hooks) == {1, 2, 3, 4, 5, 6}
    for n, name in enumerate(jobs, 1):
        last = spans.named(name)[-1]
        assert last.context is not None
        assert ids(hooks[n].trace)[1] == last.context.span_id, name
    assert len(spans.named("run bad")) == 2
    [run] = spans.named("run tells")
    assert run.context is not None and ids(delivery.trace)[1] == run.context.span_id
    assert hooks[6].trace == queued.trace


async def test_an_enqueue_that_fails_is_a_span_that_failed(ol: Outlast, spans: Recorded) -> None:
    """R197: whoever looks at a request sees that its job was not stored."""

    @ol.task
    async def add(a: int) -> int:
        return a

    await add.using(key="one").aenqueue(1)
    with pytest.raises(KeyConflict):
        await add.using(key="one").aenqueue(2)
    with pytest.raises(KeyConflict):
        add.using(key="one").enqueue(3)
    good, *failed = spans.named("enqueue add")
    assert good.status.status_code is StatusCode.UNSET and len(failed) == 2
    for span in failed:
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]
    ol.enqueue(add.job(4), add.job(5))
    [two] = spans.named("enqueue add")[3:]
    assert dict(two.attributes or {}) == {"outlast.jobs": 2}


async def test_remote_workers_and_the_api_are_part_of_the_trace(
    ol: Outlast, spans: Recorded, tmp_path: Path
) -> None:
    """R197: from a caller's `traceparent` by the service to a remote worker's attempt, and the hook
    that the service makes of its end."""

    @ol.task
    async def hook() -> None: ...

    @ol.task(on_success=hook.job())
    async def far() -> None: ...

    with serving(ol) as served:
        token = served.token("work", "enqueue", "read")
        answer = served.post(
            "/api/v1/jobs", token, json={"task": "far"}, headers={"traceparent": PARENT}
        )
        async with RemoteWorker(served.url, token, ol, spool=tmp_path, grace=1.0):
            await ended(ol, await ol.ajob(answer.json()["id"]))
            await aeventually(lambda: len(spans.named("run hook")) == 1)
    [sent], [ran], [after] = (spans.named(n) for n in ("enqueue far", "run far", "run hook"))
    assert sent.parent and ran.parent and after.parent and sent.context and ran.context
    assert (sent.parent.trace_id, sent.parent.span_id) == ids(PARENT)
    assert ran.parent.span_id == sent.context.span_id
    assert after.parent.span_id == ran.context.span_id


async def test_a_batch_is_linked_to_the_traces_of_its_items(ol: Outlast, spans: Recorded) -> None:
    @ol.task(batch=10, wait=0.01)
    async def total(numbers: list[int]) -> None: ...

    tracer, traces = trace.get_tracer("test"), set()
    for n in range(3):
        with tracer.start_as_current_span("request") as request:
            traces.add(request.get_span_context().trace_id)
            job = await total.aenqueue(n)
    async with work(ol):
        await ended(ol, job)
    linked = {link.context.trace_id for span in spans.named("run total") for link in span.links}
    parents = {span.parent.trace_id for span in spans.named("run total") if span.parent}
    assert linked | parents == traces


@pytest.mark.parametrize(
    "kept", ["", "nonsense", "00-zz-11-01", "00-" + "0" * 32 + "-1-01", "x" * 99]
)
async def test_a_row_may_hold_anything(
    ol: Outlast, spans: Recorded, database: Any, kept: str
) -> None:
    @ol.task
    async def add(a: int) -> int:
        return a

    job = await add.aenqueue(1)
    sql(database, "UPDATE {job} SET trace = ? WHERE id = ?", kept, job.id)
    async with work(ol):
        assert (await ended(ol, job)).state == "succeeded"
    assert [span.parent for span in spans.named("run add")] == [None]
    assert len(spans.named("enqueue add")) == 1


async def test_without_a_tracer_follow_ups_still_carry_the_trace_on(ol: Outlast) -> None:
    """R197: enqueued by a program that traces, carried out by one that does not."""

    @ol.task
    async def leaf() -> None: ...

    @ol.task
    def root(ctx: Context) -> None:
        ctx.enqueue(leaf.job())
        leaf.enqueue()

    [job] = traced([root.job().new_job()], PARENT)
    assert tracing.tracer() is None
    assert job.trace == PARENT
    from outlast.ops.enqueue import enqueue

    [first] = await ol.store.arun(enqueue, [job])
    async with work(ol):
        await ended(ol, first)
    assert [child.trace for child in await ol.ajobs(task="leaf")] == [PARENT, PARENT]
    assert (await leaf.aenqueue()).trace is None, "and it ends with the attempt"


def test_nothing_is_imported_for_it() -> None:
    """Where a program does not use OpenTelemetry, nor do we."""
    code = (
        "import sys; from outlast import Outlast; ol = Outlast('sqlite:///x.db');"
        "import outlast.worker.worker, outlast.tracing as t; assert t.tracer() is None;"
        "assert t.traced([]) == []; assert not any('opentelemetry' in m for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_a_context_that_outlives_a_traced_handler_refuses_what_would_be_lost(
    ol: Outlast, spans: Recorded
) -> None:
    """R007: tracing changes nothing of it."""
    await refuses_late_calls(ol)
    assert spans.named("run leaves")
