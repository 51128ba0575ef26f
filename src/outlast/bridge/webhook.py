"""Webhooks: somebody's server is told when a job has ended, or of whatever else.

    a job ends ── in the same transaction ──▶ a delivery, which is a job ──▶ POST, signed

So nothing that happens to a delivery can change the job that it tells of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..model.errors import InvalidOption, Permanent
from ..model.job import Job
from ..model.options import Options, check_name, seconds
from ..model.retry import Retry
from ..model.task import Call, Definition
from ..tasks import Prepared
from ..version import VERSION
from ..worker.context import Context
from . import message
from .post import Receiver
from .signing import Received, Secrets, keys_of, new_secret, signed, verify

if TYPE_CHECKING:
    from ..client import Outlast

__all__ = ["ENDS", "Endpoint", "Received", "Webhook", "new_secret", "verify"]

ENDS = ("succeeded", "dead", "cancelled")
QUEUE = "webhooks"
FOR_A_DAY = Retry(max_attempts=30, base=5.0, cap=3600.0)
SPARE = 5.0  # seconds after its own deadline at which a delivery is ended from outside


@dataclass(frozen=True)
class Endpoint:
    """Who is told, and how they know that it is us. What is in here is in the program alone: in no
    row, no log and no error."""

    receiver: Receiver
    keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def of(cls, name: str, url: str, secret: Secrets, timeout: float) -> Endpoint:
        limit = seconds("timeout", timeout, above=0.0)
        if limit is None:
            raise InvalidOption(
                option="timeout", reason="must be given: no receiver may take for ever"
            )
        return cls(Receiver(check_name("name", name), _checked(url), limit), keys_of(secret))

    async def deliver(self, type: str, ctx: Context, data: Any = None) -> dict[str, int]:
        """One attempt at one message: about the job that it comes after, or of `data`."""
        delivery, about = ctx.job, None
        if type.startswith(message.ABOUT_A_JOB):
            about = await _before(ctx)
            body = message.of_job(type, about, delivery)
        else:
            body = message.of_event(type, data, delivery)
        headers = {
            "content-type": "application/json",
            "user-agent": f"outlast/{VERSION}",
            **message.headers(delivery, about),
            **signed(self.keys, delivery.id, body, int(time.time())),
        }
        answer = await self.receiver.post(body, headers)
        return {"status": answer.status}


class Webhook(Prepared):
    """What `ol.webhook(…)` makes: for the `tell` of tasks and jobs, their `on_success`, `on_dead`
    and `on_cancel`, and to enqueue messages of one's own."""

    def __init__(
        self, app: Outlast, definition: Definition, endpoint: Endpoint, events: tuple[str, ...]
    ) -> None:
        super().__init__(app, definition, Options(), None)
        self.name = definition.name
        self.endpoint = endpoint
        self.events = events
        self.queue = definition.options.queue or QUEUE
        self.tenant = definition.options.tenant  # None: of whichever tenant the job is

    def using(self, *, conn: Any = None, **options: Any) -> Webhook:
        said, same = super().using(conn=conn, **options), copy(self)
        same._options, same._conn = said._options, said._conn
        return same

    def job(self, type: str, data: Any = None) -> Call:
        """A message to be enqueued together with other calls."""
        if type.startswith(message.ABOUT_A_JOB):
            raise InvalidOption(
                option="type", reason="that begins with 'job.' is for jobs that end"
            )
        return super().job(type, data=data)

    def at_end(self, state: str) -> Call:
        """The message about a job that has ended so."""
        if state not in self.events:
            raise InvalidOption(
                option="events", reason=f"of the webhook {self.name!r} leave out {state!r}"
            )
        return super().job(message.ABOUT_A_JOB + state)

    def __repr__(self) -> str:
        return f"<webhook {self.name}>"


def define(app: Outlast, to: Endpoint, events: Sequence[str], options: dict[str, Any]) -> Webhook:
    """The task that delivers, and what callers hold of it."""
    name, known = to.receiver.name, app.webhooks.get(to.receiver.name)
    if known is not None and known.endpoint.receiver.url != to.receiver.url:
        raise InvalidOption(option="name", reason=f"{name!r} is taken by another webhook")
    said = Options.of({"queue": QUEUE, **options, "timeout": to.receiver.timeout + SPARE})
    definition = Definition(
        name=name,
        function=to.deliver,
        retry=said.retry or FOR_A_DAY,
        options=said,
        context_type=Context,
        breaker=None,  # deliveries end after a day; a silent receiver is met one at a time
    )
    made = Webhook(app, definition, to, _events(events))
    app.registry.add(definition)
    return made


async def _before(ctx: Context) -> Job:
    async for job in ctx.prerequisites():
        return job  # type: ignore[no-any-return]
    raise Permanent("a message whose type begins with 'job.' is about the job that it comes after")


def _events(events: Sequence[str]) -> tuple[str, ...]:
    if isinstance(events, str) or not events or not set(events) <= set(ENDS):
        raise InvalidOption(option="events", reason=f"must be some of {', '.join(ENDS)}")
    return tuple(event for event in ENDS if event in events)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        fits = False
    if not fits or parts.username or parts.password or not (url.isascii() and url.isprintable()):
        reason = "must be like https://shop.example.org/hooks, without a name or password in it"
        raise InvalidOption(option="url", reason=reason)
    return url
