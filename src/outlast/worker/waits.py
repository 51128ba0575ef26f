"""Durable waits of one attempt: sleep, signals, the end of other jobs.

A wait that is over returns its kept result. A wait that is not raises `Waiting`, which ends the
attempt: the row waits, and the slot, the thread and the lease are free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, ParamSpec, TypeVar

from ..model.arguments.signal_value import read_signal, signal_schema
from ..model.blob import Blob
from ..model.claim import Claim
from ..model.errors import InvalidOption, JobCancelled, JobDead, NoBlobStore, SignalTimeout
from ..model.job import lenient_json, read_result
from ..model.lifecycle import State
from ..model.options import check_name
from ..model.outcome import reason
from ..model.wait import (
    KeptWait,
    Wait,
    Waiting,
    WaitKind,
    WaitOutcome,
    describe_subjects,
    free_name,
    signal_names,
    wait_seconds,
)
from ..ops.operation import Op
from ..ops.waits import kept_waits, settle_signal, settle_wait, wait_subject
from ..store import Store
from ..store.blobs.store import Blobs
from .steps import RunOperation, StepGenerator, in_step

Duration = float | timedelta | str
T = TypeVar("T")
P = ParamSpec("P")
# These use only indexes, for any table contents: prepared on the connections of claims.
FREQUENT_OPERATIONS = (kept_waits, settle_signal)


class HandlerOperations:
    """Runs the operations of handlers. Operations that resume a job after a signal run on the store
    of claims, one at a time, so that they take at most one connection there; concurrent ones, and
    all operations of threads, run on the general store."""

    def __init__(self, store: Store, hot_store: Store) -> None:
        self._store = store
        self._hot_store = hot_store
        self._busy = False  # whether the store of claims is in use here

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._store.run(operation, *args, **kwargs)

    async def arun(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        called = operation.func if isinstance(operation, partial) else operation
        if self._busy or called not in FREQUENT_OPERATIONS:
            return await self._store.arun(operation, *args, **kwargs)
        self._busy = True
        try:
            return await self._hot_store.arun(operation, *args, **kwargs)
        finally:
            self._busy = False


class Waits:
    """The waits of one attempt, in the order of the handler's calls."""

    def __init__(self, claim: Claim, blobs: Blobs | None) -> None:
        self._claim = claim
        self._blobs = blobs
        self._names: set[str] = set()
        self._kept: Mapping[str, KeptWait] | None = None
        self.signals: Mapping[str, Any] = {}  # types, as the task declares them
        self.begun: Wait | None = None  # the wait that ends the attempt

    def sleep(self, duration: Duration, name: str | None) -> StepGenerator:
        seconds = wait_seconds("duration", duration)
        wait = Wait(self._reserve("sleep", name), WaitKind.SLEEP, delay=seconds)
        if seconds > 0:
            yield from self._settled(wait)

    def signal(
        self, signal: str, type: Any, timeout: Duration | None, name: str | None
    ) -> StepGenerator:
        wait = self._signals((signal,), timeout, name)
        _, value = yield from self._taken(wait, type)
        return value

    def any_signal(
        self, signals: tuple[str, ...], timeout: Duration | None, name: str | None
    ) -> StepGenerator:
        return (yield from self._taken(self._signals(signals, timeout, name), None))

    def end_of(
        self, subject: object, type: object, timeout: Duration | None, name: str | None
    ) -> StepGenerator:
        id, given = _id_of(subject), _timeout(timeout)
        if id == self._claim.id:
            raise InvalidOption(option="wait_for", reason="is not for the job itself")
        wait = Wait(self._reserve(f"job {id}", name), WaitKind.JOB, (id,), given)
        kept = (yield from self._kept_waits()).get(wait.name)
        if kept is None or not kept.over:
            kept = yield from self._ended(wait, id)
        else:
            kept = yield from self._settled(wait._replace(kind=WaitKind(kept.kind)))
        if kept.kind == WaitKind.FLOW:
            return json.loads(kept.result or "{}")
        return self._result(id, kept, type)

    def _ended(self, wait: Wait, id: str) -> StepGenerator:
        while True:
            kind, awaits = yield RunOperation(partial(wait_subject, id))
            try:
                return (yield from self._settled(wait._replace(kind=kind, awaits=awaits)))
            except Waiting as waiting:
                # A job has just joined the flow: without a job to wait for, no end would wake this.
                if waiting.wait.kind is not WaitKind.FLOW or awaits is not None:
                    raise
                self.begun = None

    # One wait

    def _signals(
        self, signals: tuple[str, ...], timeout: Duration | None, name: str | None
    ) -> Wait:
        names = signal_names(signals)
        own = self._reserve("|".join(names), name)
        return Wait(own, WaitKind.SIGNAL, names, _timeout(timeout))

    def _taken(self, wait: Wait, type: object) -> StepGenerator:
        try:
            kept = yield from self._settled(wait)
        except Waiting as waiting:
            self.begun = waiting.wait._replace(forms=self._forms(wait.subjects, type))
            raise Waiting(self.begun) from None
        signal = kept.source or ""
        return signal, read_signal(signal, kept.result or "null", self._type_of(signal, type))

    def _type_of(self, signal: str, type: object) -> object:
        return self.signals.get(signal, Any) if type is None else type

    def _forms(self, signals: tuple[str, ...], type: object) -> str | None:
        """The schemas of typed signals, for forms in the dashboard."""
        schemas = {name: signal_schema(self._type_of(name, type)) for name in signals}
        known = {name: schema for name, schema in schemas.items() if schema is not None}
        return json.dumps(known) if known else None

    def _settled(self, wait: Wait) -> StepGenerator:
        """Return the kept end of a wait, or raise `Waiting` to end the attempt."""
        kept = (yield from self._kept_waits()).get(wait.name)
        if kept is not None:
            wait = _continued(wait, kept)
        if kept is None or not kept.over:
            if wait.kind is not WaitKind.SLEEP:
                settle = settle_signal if wait.kind is WaitKind.SIGNAL else settle_wait
                kept = yield RunOperation(partial(settle, self._claim, wait, kept))
            if kept is None or not kept.over:
                self.begun = wait
                raise Waiting(wait)
        if kept.outcome == WaitOutcome.TIMED_OUT:
            subject = describe_subjects(wait.kind, wait.subjects)
            raise SignalTimeout(wait=wait.name, subject=subject)
        return kept

    def _kept_waits(self) -> StepGenerator:
        """The waits of earlier attempts; under the first claim there are none."""
        if self._kept is None:
            fresh = self._claim.fence <= 1
            self._kept = {} if fresh else (yield RunOperation(partial(kept_waits, self._claim.id)))
        return self._kept

    def _reserve(self, base: str, name: str | None) -> str:
        if in_step.get():
            reason = "belongs to the handler itself: a step runs once, and cannot wait"
            raise InvalidOption(option="wait", reason=reason)
        if name is None:
            name = free_name(base, self._names)
        elif check_name("name", name) in self._names:
            reason = f"{name!r} is taken in this attempt: every wait needs a name of its own"
            raise InvalidOption(option="name", reason=reason)
        self._names.add(name)
        return name

    def _result(self, id: str, kept: KeptWait, type: object) -> object:
        """Return the result of a succeeded job; raise the error of any other."""
        match kept.source:
            case State.SUCCEEDED:
                value = read_result(kept.result)
                if isinstance(value, Blob):
                    if self._blobs is None:
                        raise NoBlobStore(job=id, bytes=value.size)
                    value = lenient_json(self._blobs.text(id, value))
                return value if type is None else read_signal(id, json.dumps(value), type)
            case State.CANCELLED:
                raise JobCancelled(job=id, reason=reason(lenient_json(kept.result or "null")))
            case _:
                raise JobDead(job=id, reason=reason(lenient_json(kept.result or "null")))


def _continued(wait: Wait, kept: KeptWait) -> Wait:
    """A wait that began in an earlier attempt keeps its time-out."""
    if kept.kind != wait.kind:
        reason = (
            f"{wait.name!r} began as a wait of another kind ({kept.kind}): give this one"
            " another name"
        )
        raise InvalidOption(option="name", reason=reason)
    return wait if kept.until is None else wait._replace(due=kept.until)


def _timeout(timeout: Duration | None) -> float | None:
    return None if timeout is None else wait_seconds("timeout", timeout)


def _id_of(subject: object) -> str:
    from uuid import UUID

    id = subject if isinstance(subject, str) else getattr(subject, "id", None)
    try:
        return str(UUID(str(id)))
    except ValueError:
        reason = f"takes a job, a flow, or the id of one, not {subject!r:.80}"
        raise InvalidOption(option="wait_for", reason=reason) from None
