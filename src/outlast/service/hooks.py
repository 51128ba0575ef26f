"""Hooks: webhooks that become jobs, for all `Http` sources of the app.

Any client may send a request. So invalid headers are refused before the body is read, all bodies in
transit share a limit, and wrong signatures are throttled by address. A valid signature always
passes: it cannot be guessed, and must not be delayed by wrong ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from ..bridges.hook import Hook
from ..bridges.http import Http
from ..bridges.source_report import REPORT_INTERVAL_S
from ..client.client import Outlast
from ..model.errors import InvalidOption, WebhookRefused
from ..model.settings import ServiceSettings
from .auth.principals import address_of
from .auth.throttle import Throttle
from .offload import in_thread_if_large
from .parsing import read_body
from .problems import Forbidden, NotFound, Throttled, Unavailable

log = logging.getLogger("outlast.service")

MAX_BUFFERED_BYTES = 64_000_000  # of all bodies that are being read or stored
BUSY_RETRY_S = 5.0
FULL_RETRY_S = 10.0
IDLE_REPORT_S = 20.0
LOG_INTERVAL_S = 60.0


class SignatureRefused(Forbidden):
    """A request whose sender does not know the secret, or a replay."""


class Hooks:
    """Receives webhooks, and reports their number."""

    def __init__(self, ol: Outlast, settings: ServiceSettings) -> None:
        self._ol = ol
        self._max_body = settings.max_body
        self._throttle = Throttle(settings.guesses)
        self._hooks: dict[str, Hook] = {}
        self._buffered = 0
        self._refused = 0  # since the last line in the log
        self._log_at = 0.0

    def check(self) -> None:
        """Refuse to start without the secrets of the declared webhooks."""
        for hook in self._declared():
            hook.http.keys()

    async def receive(self, name: str, request: Request) -> None:
        """Store a webhook as a job; return when it is committed."""
        hook = self._hook(name)
        headers = dict(request.headers)
        try:
            hook.http.keys()
            head = hook.http.read_head(headers)
            with self._buffer() as buffer:
                body = await read_body(request, self._max_body, buffer.add)
                message, made = await in_thread_if_large(
                    len(body), lambda: hook.verified(head, headers, body)
                )
                stored = await hook.store(message, made)
        except WebhookRefused as refused:
            raise self._refusal(name, request, refused) from None
        except InvalidOption as error:  # a mistake of this service's setup, not of the sender
            log.error("hook %s: %s", name, error)
            raise Unavailable("this hook is not set up: see the server's log") from None
        if not stored:
            raise Throttled(FULL_RETRY_S, "too many messages are waiting to be processed")

    async def run(self) -> None:
        """Report received messages periodically, and at the end."""
        idle_at = 0.0
        try:
            while True:
                idle = time.monotonic() >= idle_at
                await self._report(idle=idle)
                if idle:
                    idle_at = time.monotonic() + IDLE_REPORT_S
                await asyncio.sleep(REPORT_INTERVAL_S)
        finally:
            await asyncio.shield(self._report(idle=False))

    async def _report(self, *, idle: bool) -> None:
        for hook in self._declared():
            if idle or hook.unreported:
                await hook.report()

    def _declared(self) -> list[Hook]:
        """The hooks of all webhook sources, including those declared after the start."""
        for name, inbox in self._ol.declared_sources.items():
            if name not in self._hooks and isinstance(inbox.source, Http):
                self._hooks[name] = Hook(inbox, inbox.source, self._ol._areceive_jobs)
        return list(self._hooks.values())

    def _hook(self, name: str) -> Hook:
        if name not in self._hooks:
            self._declared()
        if name not in self._hooks:
            raise NotFound("no such hook: the app of `outlast serve APP` declares it by ol.source")
        return self._hooks[name]

    @contextmanager
    def _buffer(self) -> Iterator[_Buffer]:
        buffer = _Buffer(self)
        try:
            yield buffer
        finally:
            self._buffered -= buffer.size

    def buffer(self, size: int) -> None:
        """Count bytes of a body, or refuse them."""
        if self._buffered + size > MAX_BUFFERED_BYTES:
            raise Unavailable("too many large requests at once: try again later", BUSY_RETRY_S)
        self._buffered += size

    def _refusal(self, name: str, request: Request, error: WebhookRefused) -> Exception:
        """Count and log a wrong signature; the first few of an address learn the reason."""
        address, now = address_of(request), time.monotonic()
        wait = self._throttle.wait(address)
        self._throttle.record_failure(address)
        self._refused += 1
        if now >= self._log_at:
            log.warning(
                "hook %s: %d requests refused, the last from %s: %s",
                name, self._refused, address, error.reason,
            )  # fmt: skip
            self._refused, self._log_at = 0, now + LOG_INTERVAL_S
        if wait:
            return Throttled(wait, "too many wrong signatures from this address")
        return SignatureRefused(str(error))


class _Buffer:
    """The bytes of one request's body."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.size = 0

    def add(self, size: int) -> None:
        self._hooks.buffer(size)
        self.size += size
