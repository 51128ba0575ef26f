"""OpenTelemetry, where a program uses it: a job carries the trace of whoever enqueued it, and its
attempts are spans of that trace.

    span `enqueue <task>` ── traceparent in the row ──▶ claim ──▶ span `run <task>` ─┬▶ ctx.enqueue
                                                                                     └▶ hooks

The API is never imported here before the program has done so: as long as nobody has, there can be
no span, and all that this costs is one look. Without a tracer, what a handler enqueues still
carries on the trace of its job.
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
PROVIDER_CHECK_S = 1.0  # seconds between looks whether somebody has begun to record
_modules = sys.modules
_next_check_at = 0.0
_carried: ContextVar[str | None] = ContextVar("outlast_trace", default=None)
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def traced(jobs: list[NewJob], parent: str | None = None) -> list[NewJob]:
    """The jobs with the trace of the current span, or else with the one that is carried on."""
    if (trace := _current() or parent or _carried.get()) is None:
        return jobs
    return [_with(trace, job) for job in jobs]


def continue_trace(trace: str | None) -> None:
    """What is enqueued here from now on (in this task or thread) belongs to this trace, unless a
    span says otherwise. What is no trace is not carried on."""
    if trace is not None and _TRACEPARENT.fullmatch(trace):
        _carried.set(trace)


def _with(trace: str, job: NewJob) -> NewJob:
    """Jobs that are made when this one ends belong to the same trace."""
    if job.hooks is None:
        return replace(job, trace=trace)
    hooks = json.loads(job.hooks)
    for rows in hooks.values():
        for row in rows:
            row["trace"] = trace
    return replace(job, trace=trace, hooks=json.dumps(hooks))


def current(carried: str | None) -> str | None:
    """Where we are, for a system that is told of it: this span, or else what a row carries."""
    return _current() or valid_traceparent(carried)


def valid_traceparent(trace: str | None) -> str | None:
    """A traceparent, if it is one."""
    return trace if isinstance(trace, str) and _TRACEPARENT.fullmatch(trace) else None


def _current() -> str | None:
    """The current span as W3C writes it."""
    api = _modules.get(API)
    if api is None:
        return None
    return trace_of(api.get_current_span())


def trace_of(span: Any) -> str | None:
    """A span as W3C writes it."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def tracer() -> Any:
    """Where attempts are recorded; None where they are not. Asked for each job, and asking
    OpenTelemetry takes a while: that nobody records is believed for a moment."""
    global _next_check_at  # noqa: PLW0603
    api = _modules.get(API)
    if api is None or monotonic() < _next_check_at:
        return None
    if isinstance(api.get_tracer_provider(), _no_providers(api)):
        _next_check_at = monotonic() + PROVIDER_CHECK_S
        return None
    return api.get_tracer("outlast")


def _no_providers(api: Any) -> tuple[type, ...]:
    """Those that record nothing: what there is until a program has chosen one, and what it may
    choose to have none."""
    return api.ProxyTracerProvider, api.NoOpTracerProvider


@contextmanager
def enqueuing(tracer: Any, jobs: list[NewJob]) -> Iterator[list[NewJob]]:
    """A span around the storing of jobs, which carry it: under the current span, or else under the
    trace that is carried on."""
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
    """Say in the current span how many jobs were stored, where that was not known before."""
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
    """A span around the call of a handler: in the trace of its job, or linked to those of all the
    jobs of its batch. What the handler was given, and what its error says, is no part of it: of an
    exception it has the type and the stack."""
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
    """A span that is elsewhere, from a row, which may hold anything."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

    if trace is None or not _TRACEPARENT.fullmatch(trace):
        return None
    _, trace_id, span_id, flags = trace.split("-")
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return NonRecordingSpan(context) if context.is_valid else None
