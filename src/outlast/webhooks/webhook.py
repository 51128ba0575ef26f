"""Webhooks: notify another server of the end of a job, or of any other event.

    a job ends ── in the same transaction ──▶ a delivery, which is a job ──▶ POST, signed

So a delivery cannot change the job that it reports.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack
from urllib.parse import urlsplit

from ..model.errors import InvalidOption, Permanent
from ..model.job import Job
from ..model.options import JobOptions, Options, check_name, seconds
from ..model.retry import Retry
from ..model.task import Call, TaskDefinition
from ..task import BoundTask
from ..version import VERSION
from ..worker.context import Context
from . import payload
from .delivery import Destination
from .signing import Received, Secrets, keys_of, new_secret, signature_headers, verify

if TYPE_CHECKING:
    from ..client.client import Outlast

__all__ = ["FINAL_STATES", "Endpoint", "Received", "Webhook", "new_secret", "verify"]

FINAL_STATES = ("succeeded", "dead", "cancelled")
QUEUE = "webhooks"
DEFAULT_RETRY = Retry(max_attempts=30, base=5.0, cap=3600.0)
DEADLINE_MARGIN_S = 5.0  # seconds after a delivery's own deadline at which its job times out


@dataclass(frozen=True)
class Endpoint:
    """A receiver and its secret. These exist only in the program, never in a row, log or error."""

    destination: Destination
    keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, name: str, url: str, secret: Secrets, timeout: float) -> Endpoint:
        limit = seconds("timeout", timeout, above=0.0)
        if limit is None:
            raise InvalidOption(
                option="timeout", reason="must be given: no delivery may run for ever"
            )
        return cls(Destination(check_name("name", name), _checked_url(url), limit), keys_of(secret))

    async def deliver(self, type: str, ctx: Context, data: object = None) -> dict[str, int]:
        """Make one attempt to deliver a message: about the job before it, or with `data`."""
        delivery, about = ctx.job, None
        if type.startswith(payload.JOB_TYPE_PREFIX):
            about = await _finished_job(ctx)
            body = payload.job_payload(type, about, delivery)
        else:
            body = payload.event_payload(type, data, delivery)
        headers = {
            "content-type": "application/json",
            "user-agent": f"outlast/{VERSION}",
            **payload.headers(delivery, about),
            **signature_headers(self.keys, delivery.id, body, int(time.time())),
        }
        answer = await self.destination.post(body, headers)
        return {"status": answer.status}


class Webhook(BoundTask[..., dict[str, int]]):
    """A webhook, made with `ol.webhook(…)`: for the `tell` of tasks and jobs, for their
    `on_success`, `on_dead` and `on_cancel`, and to enqueue messages of your own."""

    def __init__(
        self, app: Outlast, definition: TaskDefinition, endpoint: Endpoint, events: tuple[str, ...]
    ) -> None:
        super().__init__(app, definition, Options(), None)
        self.name = definition.name
        self.endpoint = endpoint
        self.events = events
        self.queue = definition.options.queue or QUEUE
        self.tenant = definition.options.tenant  # None: the job's tenant

    def using(self, *, conn: object = None, **options: Unpack[JobOptions]) -> Webhook:
        bound, copied = super().using(conn=conn, **options), copy(self)
        copied._options, copied._conn = bound._options, bound._conn
        return copied

    def job(self, type: str, data: object = None) -> Call[dict[str, int]]:
        """A message to be enqueued together with other calls."""
        if type.startswith(payload.JOB_TYPE_PREFIX):
            raise InvalidOption(
                option="type", reason="that begins with 'job.' is reserved for ends of jobs"
            )
        return super().job(type, data=data)

    def at_end(self, state: str) -> Call[dict[str, int]]:
        """The message about the end of a job in this state."""
        if state not in self.events:
            raise InvalidOption(
                option="events", reason=f"of the webhook {self.name!r} leave out {state!r}"
            )
        return super().job(payload.JOB_TYPE_PREFIX + state)

    def __repr__(self) -> str:
        return f"<webhook {self.name}>"


def define(
    app: Outlast, to: Endpoint, events: Sequence[str], options: dict[str, object]
) -> Webhook:
    """Define the delivering task, and its `Webhook`."""
    name, known = to.destination.name, app.webhooks.get(to.destination.name)
    if known is not None and known.endpoint.destination.url != to.destination.url:
        raise InvalidOption(option="name", reason=f"{name!r} is taken by another webhook")
    task_options = Options.of(
        {"queue": QUEUE, **options, "timeout": to.destination.timeout + DEADLINE_MARGIN_S}
    )
    definition = TaskDefinition(
        name=name,
        function=to.deliver,
        retry=task_options.retry or DEFAULT_RETRY,
        options=task_options,
        context_type=Context,
        breaker=None,  # deliveries end after a day; a silent receiver is probed one at a time
        tenant_required=app.tenant_required,
    )
    webhook = Webhook(app, definition, to, _events(events))
    app.registry.add(definition)
    return webhook


async def _finished_job(ctx: Context) -> Job:
    async for job in ctx.prerequisites():
        return job  # type: ignore[no-any-return]
    raise Permanent("a message whose type begins with 'job.' needs the job that it reports on")


def _events(events: Sequence[str]) -> tuple[str, ...]:
    listed = isinstance(events, Iterable) and not isinstance(events, str)
    if not listed or not events or not set(events) <= set(FINAL_STATES):
        raise InvalidOption(option="events", reason=f"must be some of {', '.join(FINAL_STATES)}")
    return tuple(event for event in FINAL_STATES if event in events)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        fits = False
    if not fits or parts.username or parts.password or not (url.isascii() and url.isprintable()):
        reason = "must be like https://shop.example.org/hooks, without a name or password in it"
        raise InvalidOption(option="url", reason=reason)
    return url
