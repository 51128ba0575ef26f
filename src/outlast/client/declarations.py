"""Declarations of an app beside its tasks: webhooks, outboxes, sources, queues, schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..model.batch import Batch
from ..model.lane import QueueLimits, QueueOptions
from ..model.schedule import ScheduleOptions
from ..model.schedule_state import ScheduleDefinition
from ..model.task import Call

if TYPE_CHECKING:
    from ..bridges.http import Http
    from ..bridges.inbox import Inbox
    from ..bridges.outbox import Outbox
    from ..bridges.protocols import Message, Sink, Source
    from ..task import BoundTask
    from ..webhooks.webhook import Webhook
    from .client import Outlast


def webhook(
    self: Outlast,
    name: str,
    *,
    url: str,
    secret: str | Iterable[str],
    timeout: float = 10.0,
    events: Sequence[str] = ("succeeded", "dead", "cancelled"),
    **options: object,
) -> Webhook:
    """Register a webhook: a server that gets a signed POST when jobs end, for the option `tell`
    of tasks and jobs. Each delivery is a job of the task of this name. With several secrets,
    each message is signed with each of them.

    Options: retry (for about a day), queue (`webhooks`), tenant (then only its jobs may name
    it from outside), priority, max_crashes, expires, on_dead, on_cancel.
    """
    from ..webhooks.webhook import Endpoint, define

    to = Endpoint.of(name, url, secret, timeout)
    self.webhooks[name] = made = define(self, to, events, options)
    return made


def outbox(
    self: Outlast, name: str, sink: Sink, *, batch: int = 500, wait: float = 0.02, **options: object
) -> Outbox:
    """Declare an outbox: `publish` makes a message a job, also in your own transaction, and
    workers send up to `batch` of them at once to the `sink`. Messages of one key are sent in
    order. While the sink is down, no attempt is spent.

    Options: retry, breaker, timeout (30 s for one call of the sink), queue (the outbox's name),
    tenant, priority, max_crashes, expires, on_success, on_dead, on_cancel.
    """
    from ..bridges.outbox import define

    self.declared_outboxes[name] = made = define(self, name, sink, Batch(batch, wait), options)
    return made


def source(  # noqa: PLR0913 - as the contract has it
    self: Outlast,
    name: str,
    source: Source | Http,
    *,
    task: BoundTask[..., Any],
    batch: int = 100,
    wait: float = 20.0,
    decode: Callable[[Message], object] | None = None,
) -> Inbox:
    """Declare a source: each of its messages becomes one job of `task`, called with the decoded
    body (JSON, unless `decode` reads it), and is acknowledged once the job is committed.
    Workers receive up to `batch` messages at once, and wait up to `wait` seconds for them;
    webhooks (`Http`) are received by the service, under `/hooks/NAME`.

    A message that cannot be decoded becomes a dead job with its raw body.
    """
    from ..bridges.inbox import Inbox, check_name_is_free

    made = Inbox(self, name, source, task, batch=batch, wait=wait, decode=decode)
    check_name_is_free(self.declared_sources.get(name), made)
    self.declared_sources[name] = made
    return made


def queue(self: Outlast, name: str, **limits: Unpack[QueueOptions]) -> QueueLimits:
    """Declare the limits of a queue: `running` jobs at once, `lane_running` per lane; `rate`
    and `lane_rate` starts ("600/m"), `burst` of them at once. Lanes take turns, with `weights`
    jobs per turn. `lane="tenant"` makes each tenant a lane. `ordered` lanes run one job at a
    time, in order; a dead job lets the next one `pass`, or `block`s its lane. With
    `most_waiting` ready jobs the queue is full: metrics and `outlast doctor` report it, and
    `overflow` decides whether an enqueue is refused, drops the oldest or the new job, or waits.
    `quota` and `lane_quota` are how many jobs it admits in a period ("10000/d").

    Stored when a worker starts or at the next enqueue."""
    return self._parts.declare_queue(QueueLimits.declared(name, **limits))


def schedule(self: Outlast, name: str, job: Call, **options: Unpack[ScheduleOptions]) -> None:
    """Declare a schedule: workers of this app enqueue the call by the clock. A task may have
    many. Options: cron or every, tz, missed, overlap, jitter, grace."""
    self.registry.add_schedule(ScheduleDefinition.of(name, job, options))
