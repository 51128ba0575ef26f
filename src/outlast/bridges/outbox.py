"""Outbox: messages are jobs, inserted in the caller's transaction; a batch task sends them.

    publish ── a job, with your rows ──▶ claim ──▶ relay ──┬── sent ───────── succeeded
                                                           ├── Bad ────────── dead at once
                                                           ├── Retry ──────── retried alone
                                                           └── SinkDown ───── unspent, breaker opens

Messages without a key are in the queue of the outbox's name, claimed like any other. Messages with
a key are in `NAME.keyed`: each key is an ordered lane, so one batch at a time owns it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..model.batch import Batch
from ..model.breaker import Breaker
from ..model.claim import Claim
from ..model.errors import BatchFailed, InvalidOption, NotAttempted, Permanent
from ..model.job import Job
from ..model.options import MAX_NAME_CHARS, Options, check_name, seconds
from ..model.retry import Retry
from ..model.safe_text import error_summary
from ..model.task import Call, TaskDefinition
from ..model.task_function import is_async
from ..task import BoundTask
from ..tracing import valid_traceparent
from ..worker.batch_context import BatchContext
from .key_failures import KeyFailures
from .protocols import Limits, Message, SendOutcome, Sink, SinkDown
from .relay import Failures, Pace, relay
from .session import session_of

if TYPE_CHECKING:
    from ..client.client import Outlast

KEYED = ".keyed"  # suffix of the queue and task of messages with a key
DEFAULT_RETRY = Retry(max_attempts=10, base=1.0, cap=300.0)
DEFAULT_TIMEOUT_S = 30.0
TASK_OPTIONS = ("retry", "breaker", "timeout")
MAX_HEADERS = 100
TRACEPARENT = "traceparent"


class Outbox:
    """An outbox, created by `ol.outbox(…)`: publishes messages, optionally in your own
    transaction."""

    def __init__(
        self, app: Outlast, name: str, sink: Sink, batch: Batch, options: dict[str, Any]
    ) -> None:
        self.name = check_name("name", name)
        self.sink = _checked_sink(sink)
        self._app = app
        self._breaker = options.pop("breaker", None) or Breaker()
        self._timeout = seconds("timeout", options.pop("timeout", DEFAULT_TIMEOUT_S), above=0.0)
        self.session = session_of(sink, f"outbox {name}")
        retry = options.pop("retry", None) or DEFAULT_RETRY
        self.queue = check_name("queue", options.pop("queue", None) or self.name)
        self._definitions = {
            keyed: TaskDefinition(
                name=self.name + (KEYED if keyed else ""),
                function=self._deliver_keyed if keyed else self._deliver,
                retry=retry,
                options=Options.of(
                    {**options, "queue": self.queue + (KEYED if keyed else "")}, also=TASK_OPTIONS
                ),
                context_type=BatchContext,
                batch=batch,
                breaker=self._breaker,
                tenant_required=app.tenant_required,
            )
            for keyed in (False, True)
        }
        self.key_failures = KeyFailures()
        self._pace = Pace(self.name)
        self.counts: Counter[tuple[str, str, str]] = Counter()  # by queue, task and result
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    @property
    def queues(self) -> tuple[str, str]:
        """The queues of messages without and with a key."""
        return self.queue, self.queue + KEYED

    # Publish

    def publish(
        self,
        value: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str | None = None,
        delay: float | timedelta | None = None,
        conn: object = None,
    ) -> Job:
        """Publish a JSON value (or bytes): it is durable when this returns, or when `conn` commits.
        Messages with the same `key` are sent in order. The job's id is the message's id."""
        call = self.message(value, key=key, headers=headers, tenant=tenant, delay=delay)
        return self._app.enqueue(call, conn=conn)[0]

    async def apublish(
        self,
        value: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str | None = None,
        delay: float | timedelta | None = None,
        conn: object = None,
    ) -> Job:
        call = self.message(value, key=key, headers=headers, tenant=tenant, delay=delay)
        return (await self._app.aenqueue(call, conn=conn))[0]

    def message(
        self,
        value: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str | None = None,
        delay: float | timedelta | None = None,
    ) -> Call[None]:
        """A message to be enqueued together with other calls: `ol.enqueue(…)`, `ctx.enqueue(…)`,
        `on_success=…`."""
        if key is not None and delay is not None:
            reason = "is for messages without a key: those of a key are sent in order"
            raise InvalidOption(option="delay", reason=reason)
        options = Options(lane=lane_of(key), tenant=tenant, delay=delay)
        bound: BoundTask[..., None] = BoundTask(
            self._app, self._definitions[key is not None], options, None
        )
        return bound.job(_item(value, key, headers))

    # Pause

    def pause(self) -> None:
        """Stop sending on all workers: pause both queues."""
        for queue in self.queues:
            self._app.pause(queue)

    def resume(self) -> None:
        for queue in self.queues:
            self._app.resume(queue)

    # Send

    async def _deliver(self, items: list[dict[str, Any]], ctx: BatchContext) -> None:
        """Send one batch, and report the messages that were not sent."""
        read = [_message(item, one._claim) for item, one in zip(items, ctx.items, strict=True)]
        failures: Failures = {}
        messages: dict[int, Message] = {}
        for position, one in enumerate(read):
            if isinstance(one, Message):
                messages[position] = one
            else:
                failures[position] = one
        if messages:
            unsent = await self._send(list(messages.values()))
            positions = list(messages)
            failures |= {positions[number]: error for number, error in unsent.items()}
        self._count(ctx, failures)
        down = [error for error in failures.values() if isinstance(error, SinkDown)]
        if down and len(down) == len(messages):
            raise down[0]
        if failures:
            raise BatchFailed(failures)

    async def _send(self, messages: Sequence[Message]) -> Failures:
        """Send messages; returns the errors of those that were not sent, by position."""
        sink = await self._opened()

        async def send(some: Sequence[Message]) -> Sequence[SendOutcome]:
            async with asyncio.timeout(self._timeout):
                return await sink.send(some)

        try:
            failures = await relay(messages, send, sink.limits, self._breaker, self._pace)
        except Exception:
            await self.session.close()  # the next attempt connects anew
            raise
        if any(isinstance(error, SinkDown) for error in failures.values()):
            await self.session.close()  # the next attempt connects anew
        return failures

    def _count(self, ctx: BatchContext, failures: Mapping[int, BaseException]) -> None:
        claim = ctx.items[0]._claim
        results = Counter(_result(error) for error in failures.values())
        results["sent"] = len(ctx.items) - len(failures)
        for result, number in results.items():
            self.counts[claim.queue, claim.task, result] += number

    async def _opened(self) -> Sink:
        """The connected sink. Any error in `open` counts as `SinkDown`."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self.session.opened()
        except SinkDown:
            raise
        except Exception as error:
            raise SinkDown(f"it cannot be opened: {error_summary(error)}") from error

    async def _deliver_keyed(self, items: list[dict[str, Any]], ctx: BatchContext) -> None:
        """Send a batch of messages with keys, one batch of this process at a time, so that messages
        of a key that were claimed together are sent in order even in different batches."""
        claims = [one._claim for one in ctx.items]
        async with self._lock():
            held = self.key_failures.held_back(claims)
            open_ = [position for position in range(len(items)) if position not in held]
            failures: dict[int, BaseException] = dict(held)
            try:
                if open_:
                    rest = BatchContext([ctx.items[position] for position in open_], ctx.cancelled)
                    await self._deliver([items[position] for position in open_], rest)
            except BatchFailed as failed:
                failures |= {open_[position]: _as_error(e) for position, e in failed.errors.items()}
            except BaseException:
                self.key_failures.note(claims, dict.fromkeys(open_, SinkDown()))
                raise
            self.key_failures.note(claims, failures)
            if failures:
                raise BatchFailed(failures)

    def _lock(self) -> asyncio.Lock:
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def __repr__(self) -> str:
        return f"<outbox {self.name} to {self.sink!r}>"


def define(app: Outlast, name: str, sink: Sink, batch: Batch, options: dict[str, object]) -> Outbox:
    """Define the two tasks that send, and the limits that keep the order."""
    outbox = Outbox(app, name, sink, batch, dict(options))
    known = app.declared_outboxes.get(name)
    if known is not None and repr(known) != repr(outbox):
        raise InvalidOption(option="name", reason=f"{name!r} is taken by {known!r}")
    for definition in outbox._definitions.values():
        app.registry.add(definition)
    app.queue(outbox.queues[1], ordered=True, lane_batch=batch.size)
    return outbox


def lane_of(key: str | None) -> str | None:
    """The lane of a key: the key itself, or a digest if it is not a valid name."""
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise InvalidOption(
            option="key", reason=f"must be a text that is not empty, not {key!r:.80}"
        )
    if len(key) <= MAX_NAME_CHARS and key.isprintable() and key.strip() == key:
        return key
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _item(value: object, key: str | None, headers: Mapping[str, str] | None) -> dict[str, object]:
    """The stored form of a message."""
    item: dict[str, object] = {"value": value}
    if isinstance(value, bytes | bytearray | memoryview):
        item = {"bytes": base64.b64encode(value).decode()}
    if key is not None:
        item["key"] = key
    if headers:
        item["headers"] = _checked_headers(headers)
    return item


def _message(item: Mapping[str, Any], claim: Claim) -> Message | Permanent:
    """The message of a job, with the job's id on every attempt. A job of another program, without
    a message, becomes dead, and delays no other message."""
    try:
        key, headers = item.get("key"), _checked_headers(item.get("headers") or {})
        lane_of(key)
        raw = _raw(item)
    except (InvalidOption, ValueError, TypeError) as error:
        return Permanent(f"it is not a message of an outbox: {error_summary(error)}")
    if TRACEPARENT not in headers and (trace := valid_traceparent(claim.trace)) is not None:
        headers[TRACEPARENT] = trace
    return Message(claim.id, raw, key, headers)


def _raw(item: Mapping[str, Any]) -> bytes:
    if "bytes" in item:
        return base64.b64decode(item["bytes"], validate=True)
    return json.dumps(item.get("value"), ensure_ascii=False, separators=(",", ":")).encode()


def _result(error: BaseException) -> str:
    match error:
        case Permanent():
            return "dead"
        case SinkDown() | NotAttempted():
            return "unsent"
        case _:
            return "retried"


def _as_error(failure: BaseException | str) -> BaseException:
    return failure if isinstance(failure, BaseException) else RuntimeError(failure)


def _checked_headers(headers: object) -> dict[str, str]:
    if not isinstance(headers, Mapping) or len(headers) > MAX_HEADERS:
        reason = f"must map up to {MAX_HEADERS} names to texts, not {headers!r:.80}"
        raise InvalidOption(option="headers", reason=reason)
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            reason = f"must map names to texts: {name!r:.80} is {value!r:.80}"
            raise InvalidOption(option="headers", reason=reason)
    return dict(headers)


def _checked_sink(sink: object) -> Sink:
    if not isinstance(sink, Sink):
        reason = f"must have open, send, limits and close (outlast.bridges.Sink), not {sink!r:.80}"
        raise InvalidOption(option="sink", reason=reason)
    limits: object = sink.limits
    if not isinstance(limits, Limits):
        reason = f"must have limits of outlast.bridges.Limits(…), not {limits!r:.80}"
        raise InvalidOption(option="sink", reason=reason)
    if not is_async(sink.send):
        reason = "must have an async send: async def send(self, messages)"
        raise InvalidOption(option="sink", reason=reason)
    return sink
