"""OpenTelemetry, where a program uses it: a job carries the trace of its enqueue, and its attempts
are spans of that trace.

    span `enqueue <task>` ── traceparent in the row ──▶ claim ──▶ span `run <task>` ─┬▶ ctx.enqueue
                                                                                     └▶ hooks

The API is never imported here before the program has imported it: until then there can be no span,
and the cost is one check. Without a tracer, jobs that a handler enqueues still carry the trace of
its job.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from time import monotonic
from typing import Any

from .model.claim import Claim
from .model.job import NewJob
from .model.safe_text import format_frames, type_name

API = "opentelemetry.trace"
PROVIDER_CHECK_S = 1.0  # seconds between checks for a new provider
_modules = sys.modules
_next_check_at = 0.0
_carried: ContextVar[str | None] = ContextVar("outlast_trace", default=None)
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def traced(jobs: list[NewJob], parent: str | None = None) -> list[NewJob]:
    """Jobs with the trace of the current span, or else with the continued one."""
    if (trace := _current() or parent or _carried.get()) is None:
        return jobs
    return [_with(trace, job) for job in jobs]


def continue_trace(trace: str | None) -> None:
    """Continue a trace: jobs enqueued from now on (in this task or thread) belong to it, unless a
    span is current. An invalid trace is dropped."""
    if trace is not None and _TRACEPARENT.fullmatch(trace):
        _carried.set(trace)


def _with(trace: str, job: NewJob) -> NewJob:
    """A job with a trace; its hooks belong to the same trace."""
    if job.hooks is None:
        return replace(job, trace=trace)
    hooks = json.loads(job.hooks)
    for rows in hooks.values():
        for row in rows:
            row["trace"] = trace
    return replace(job, trace=trace, hooks=json.dumps(hooks))


def current(carried: str | None) -> str | None:
    """The current trace, to pass to another system: the current span, or else the row's trace."""
    return _current() or valid_traceparent(carried)


def valid_traceparent(trace: str | None) -> str | None:
    """The traceparent, if it is valid."""
    return trace if isinstance(trace, str) and _TRACEPARENT.fullmatch(trace) else None


def _current() -> str | None:
    """The current span as a W3C traceparent."""
    api = _modules.get(API)
    if api is None:
        return None
    return trace_of(api.get_current_span())


def trace_of(span: Any) -> str | None:
    """A span as a W3C traceparent."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def tracer() -> Any:
    """The tracer of attempts; None if they are not recorded. Called for each job, and OpenTelemetry
    is slow to ask: a missing provider is cached for PROVIDER_CHECK_S."""
    global _next_check_at  # noqa: PLW0603
    api = _modules.get(API)
    if api is None or monotonic() < _next_check_at:
        return None
    if isinstance(api.get_tracer_provider(), _no_providers(api)):
        _next_check_at = monotonic() + PROVIDER_CHECK_S
        return None
    return api.get_tracer("outlast")


def _no_providers(api: Any) -> tuple[type, ...]:
    """The provider types that record nothing: the default one, and the no-op one that a program may
    choose."""
    return api.ProxyTracerProvider, api.NoOpTracerProvider


@contextmanager
def enqueuing(tracer: Any, jobs: list[NewJob]) -> Iterator[list[NewJob]]:
    """A span around the insert of jobs, which carry it: under the current span, or else in the
    continued trace."""
    from opentelemetry.trace import SpanKind, set_span_in_context, use_span

    carried = None if _current() else _read(_carried.get())
    tasks = {job.task for job in jobs}
    span = tracer.start_span(
        f"enqueue {tasks.pop()}" if len(tasks) == 1 else "enqueue",
        context=None if carried is None else set_span_in_context(carried),
        kind=SpanKind.PRODUCER,
        attributes=_about_new(jobs),
    )
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield traced(jobs)
        except BaseException as error:
            _failed(span, error)
            raise


def count_enqueued(number: int) -> None:
    """Set the number of enqueued jobs in the current span, where it was not known before."""
    _modules[API].get_current_span().set_attribute("outlast.jobs", number)


def _about_new(jobs: Sequence[NewJob]) -> dict[str, object]:
    if len(jobs) != 1:
        return {"outlast.jobs": len(jobs)}
    (job,) = jobs
    return {
        "outlast.task": job.task,
        "outlast.queue": job.queue,
        "outlast.job": job.id,
        "outlast.tenant": job.tenant,
    }


@contextmanager
def running(tracer: Any, claims: Sequence[Claim]) -> Iterator[Any]:
    """A span around the call of a handler: in the trace of its job, or linked to those of all jobs
    of its batch. Arguments and error messages are left out: of an exception it has the type and the
    stack."""
    from opentelemetry.trace import Link, SpanKind, set_span_in_context, use_span

    contexts = [context for claim in claims if (context := _read(claim.trace)) is not None]
    alone = len(claims) == 1
    span = tracer.start_span(
        f"run {claims[0].task}",
        context=set_span_in_context(contexts[0]) if alone and contexts else None,
        kind=SpanKind.CONSUMER,
        attributes=_about(claims),
        links=[] if alone else [Link(context.get_span_context()) for context in contexts],
    )
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            _failed(span, error)
            raise


def _failed(span: Any, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode

    kind = type_name(error)
    span.set_attribute("error.type", kind)
    span.add_event(
        "exception", {"exception.type": kind, "exception.stacktrace": format_frames(error)}
    )
    span.set_status(Status(StatusCode.ERROR))


def _about(claims: Sequence[Claim]) -> dict[str, object]:
    first = claims[0]
    shared = {"outlast.task": first.task, "outlast.queue": first.queue}
    if len(claims) > 1:
        return {**shared, "outlast.jobs": len(claims)}
    return {
        **shared,
        "outlast.job": first.id,
        "outlast.attempt": first.attempt,
        "outlast.fence": first.fence,
        "outlast.tenant": first.tenant,
    }


def _read(trace: str | None) -> Any:
    """A remote span, from a row, which may hold any text."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

    if trace is None or not _TRACEPARENT.fullmatch(trace):
        return None
    _, trace_id, span_id, flags = trace.split("-")
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return NonRecordingSpan(context) if context.is_valid else None
