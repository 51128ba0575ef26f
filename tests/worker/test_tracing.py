"""One trace from whoever enqueued a job to all that followed; nothing where nobody traces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from outlast import Context, Outlast, Permanent, tracing
from outlast.tracing import traced
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
    monkeypatch.setattr(tracing, "_look_at", 0.0)
    yield recorded
    provider.shutdown()


def ids(header: str | None) -> tuple[int, int]:
    _, trace_id, span_id, _ = str(header).split("-")
    return int(trace_id, 16), int(span_id, 16)


async def test_the_row_carries_the_trace_to_the_attempt_and_on(
    ol: Outlast, spans: Recorded
) -> None:
    """R197: enqueue, run, what its handler enqueues in either way, and its hook: one trace."""

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
    assert ids(first.trace) == (asked.trace_id, asked.span_id)
    async with work(ol):
        await ended(ol, first)
        [run] = spans.named("run root")
        assert run.parent is not None and run.context is not None
        assert run.parent.span_id == asked.span_id
        leaves = await ol.ajobs(task="leaf")
        for leaf_job in leaves:
            await ended(ol, leaf_job)
        parents = {job.args["n"]: ids(job.trace) for job in await ol.ajobs(task="leaf")}
    assert {n: of for n, (of, _) in parents.items()} == dict.fromkeys((1, 2, 3), asked.trace_id)
    assert parents[1] == parents[2] == (asked.trace_id, run.context.span_id)
    assert parents[3] == (asked.trace_id, asked.span_id)
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
    [span] = spans.named("run fails")
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is None
    assert dict(span.attributes or {}) == {
        "outlast.task": "fails", "outlast.queue": "q", "outlast.job": job.id, "outlast.attempt": 1,
        "outlast.fence": 1, "outlast.tenant": "acme",
        "error.type": "outlast.model.errors.Permanent",
    }  # fmt: skip
    assert span.status.status_code is StatusCode.ERROR
    assert "4111" not in span.to_json()


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
