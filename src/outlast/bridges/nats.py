"""NATS JetStream: a subject as a sink, a durable pull consumer as a source.

A message has its id in the header `Nats-Msg-Id`, by which the stream drops repeats within its
duplicate window; its key in `outlast-key`; its headers beside them. It is sent when the stream has
acknowledged it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidOption
from ..model.options import check_whole, seconds
from .client_library import require_client
from .protocols import DEFAULT_REDELIVERY_S, Bad, Limits, Message, Retry, SendOutcome, SinkDown
from .targets import Target, check_target, name_of, shown, without_password
from .wire_headers import from_wire, to_wire

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

MESSAGE_ID = "Nats-Msg-Id"
LOST = "\ufffd"  # in place of bytes that are not UTF-8, by the client library
CONNECT_TIMEOUT_S = 5.0
ACK_TIMEOUT_S = 10.0
PULL_TIMEOUT_S = 5.0  # for the response to a pull that does not wait
DEFAULT_ACK_WAIT_S = 30.0
DEFAULT_LIMITS = Limits(items=500, bytes=16_000_000)
MAX_STATUSES = 100  # of requests that are no longer awaited
TOO_LARGE = 10054  # the stream's own limit for one message

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?\Z")


class Nats:
    """`Nats(url, subject="orders")` for an outbox: the subject, or a function of the message, which
    a stream of yours stores. `Nats(url, subject="mail.>", durable="sync")` for a source: the
    consumer is created unless it exists, with `ack_wait` seconds until a message that is not
    acknowledged comes again. `credentials` is the path of a .creds file."""

    def __init__(  # noqa: PLR0913 - as the contract has it
        self,
        url: str,
        *,
        subject: Target,
        durable: str | None = None,
        stream: str | None = None,
        ack_wait: float = DEFAULT_ACK_WAIT_S,
        max_unacknowledged: int = 1000,
        credentials: str | None = None,
        redelivery: float = DEFAULT_REDELIVERY_S,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        require_client("nats", "nats", "NATS")
        self._url = _checked_url(url)
        check_target("subject", subject)
        if durable is not None and not isinstance(subject, str):
            raise InvalidOption(option="durable", reason="is for one subject")
        if durable is not None and (not durable or set(durable) & set(" .*>/\\\t\r\n")):
            reason = f"must be a name without spaces, dots, * and >, not {durable!r:.80}"
            raise InvalidOption(option="durable", reason=reason)
        check_whole("max_unacknowledged", max_unacknowledged, 1, 1_000_000)
        self._subject, self._durable, self._stream = subject, durable, stream
        self._ack_wait = seconds("ack_wait", ack_wait, above=0.0) or DEFAULT_ACK_WAIT_S
        self._max_unacknowledged = max_unacknowledged
        self._credentials = credentials
        self.redelivery = seconds("redelivery", redelivery) or 0.0
        self.limits = limits
        self._client: Client | None = None
        self._pull: _Pull | None = None

    async def open(self) -> None:
        from nats.aio.client import Client

        # Not by `nats.connect`, which does not close a client that fails.
        self._client = Client()
        with _outages():
            # A session that failed is closed and opened anew, so the client need not reconnect.
            await self._client.connect(
                self._url.split(","),
                allow_reconnect=False,
                connect_timeout=int(CONNECT_TIMEOUT_S),
                error_cb=_ignore,
                closed_cb=self._closed,
                user_credentials=self._credentials,
            )
            if self._durable is not None:
                self._pull = await self._subscribed(self._client, self._durable)

    async def _subscribed(self, client: Client, durable: str) -> _Pull:
        from nats.js.api import AckPolicy, ConsumerConfig
        from nats.js.errors import NotFoundError

        assert isinstance(self._subject, str)
        js = client.jetstream()
        stream = self._stream or await js.find_stream_name_by_subject(self._subject)
        try:
            await js.consumer_info(stream, durable)
        except NotFoundError:
            config = ConsumerConfig(
                durable_name=durable,
                filter_subject=self._subject,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=self._ack_wait,
                max_ack_pending=self._max_unacknowledged,
            )
            await js.add_consumer(stream, config=config)
        pull = _Pull(client, stream, durable)
        await pull.start()
        return pull

    async def _closed(self) -> None:
        if self._pull is not None:
            self._pull.end()

    async def close(self) -> None:
        client, self._client = self._client, None
        pull, self._pull = self._pull, None
        if client is None:
            return
        try:
            if pull is not None and not client.is_closed:
                with suppress(Exception):  # the broker delivers them again later
                    await _nak(client, pull.arrived)
        finally:
            await client.close()

    @property
    def _nats(self) -> Client:
        if self._client is None or self._client.is_closed:
            raise SinkDown("it is not connected")
        return self._client

    # Sink

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """Publish all, and wait for the stream's acknowledgement of each."""
        client = self._nats
        answers = await asyncio.gather(
            *(self._publish(client, message) for message in messages), return_exceptions=True
        )
        for error in answers:
            if isinstance(error, BaseException):
                with _outages():
                    raise error
        return [one for one in answers if not isinstance(one, BaseException)]

    async def _publish(self, client: Client, message: Message) -> SendOutcome:
        from nats import errors
        from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

        subject = name_of(self._subject, message)
        if isinstance(subject, Retry):
            return subject
        headers = {MESSAGE_ID: message.id, **to_wire(message, _fits)}
        js = client.jetstream(timeout=ACK_TIMEOUT_S)
        try:
            await js.publish(subject, message.raw, headers=headers, stream=self._stream)
        except errors.MaxPayloadError:
            return Bad(f"{message.size:,} bytes: the server accepts {client.max_payload:,}")
        except (errors.BadSubjectError, errors.BadHeaderError) as error:
            return Bad(f"{error}: {subject!r:.80}")
        except NoStreamResponseError:
            return await self._unacknowledged(client, subject)
        except ServiceUnavailableError:
            raise
        except APIError as error:
            reason = f"{error.description} ({error.err_code})"
            return Bad(reason) if error.err_code == TOO_LARGE else Retry(reason)
        return None

    async def _unacknowledged(self, client: Client, subject: str) -> SendOutcome:
        """The outcome without an acknowledgement: the stream is missing or unavailable."""
        from nats.js.errors import NotFoundError

        try:
            stream = await client.jetstream().find_stream_name_by_subject(subject)
        except NotFoundError:
            problem = f"no stream stores the subject {subject!r}"
            if isinstance(self._subject, str):  # so no message can be sent
                raise SinkDown(f"{problem}: create one") from None
            return Bad(problem)
        raise SinkDown(f"the stream {stream} does not respond")

    # Source

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        client = self._nats
        pull = self._require_durable()
        with _outages():
            found = await pull.take(client, limit, wait)
        return [_read(one) for one in found]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        client = self._nats
        with _outages():
            for one in messages:
                await one.receipt.ack()
            await client.flush()

    async def hand_back(self, messages: Sequence[Message]) -> None:
        client = self._nats
        with _outages():
            await _nak(client, [one.receipt for one in messages])

    async def lag(self) -> int | None:
        """The number of messages not delivered to the consumer, or not acknowledged by it."""
        pull = self._require_durable()
        with _outages():
            info = await self._nats.jetstream().consumer_info(pull.stream, pull.durable)
        return int(info.num_pending or 0) + int(info.num_ack_pending or 0)

    def _require_durable(self) -> _Pull:
        if self._durable is None:
            raise InvalidOption(
                option="durable",
                reason='must be given for a source: Nats(url, subject=…, durable="…")',
            )
        if self._pull is None:
            raise SinkDown("it is not connected")
        return self._pull

    def __repr__(self) -> str:
        durable = "" if self._durable is None else f", durable {self._durable}"
        return f"NATS {without_password(self._url)}, subject {shown(self._subject)}{durable}"


class _Pull:
    """Requests to a pull consumer, and the messages that arrived. A cancelled call leaves them for
    the next one."""

    def __init__(self, client: Client, stream: str, durable: str) -> None:
        self.stream, self.durable = stream, durable
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._inbox = client.new_inbox()
        self._client = client
        self.arrived: deque[Msg] = deque()
        self._statuses: dict[str, str] = {}  # final status of a request, by its inbox
        self._requests = 0
        self._changed = asyncio.Event()
        self._ended = False

    async def start(self) -> None:
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_message)

    async def take(self, client: Client, limit: int, wait: float) -> list[Msg]:
        """The messages that have arrived; else wait for the first one."""
        if not self.arrived:
            await self._request(client, {"batch": limit, "no_wait": True}, limit, PULL_TIMEOUT_S)
        if not self.arrived and wait > 0:
            expires = {"expires": int(wait * 1e9)}
            await self._request(client, {"batch": 1, **expires}, 1, wait + PULL_TIMEOUT_S)
            if self.arrived and limit > 1:
                more = {"batch": limit - 1, "no_wait": True}
                await self._request(client, more, limit, PULL_TIMEOUT_S)
        return [self.arrived.popleft() for _ in range(min(limit, len(self.arrived)))]

    async def _request(
        self, client: Client, request: dict[str, Any], enough: int, timeout: float
    ) -> None:
        """Request messages, and wait until enough have arrived or the server ends the request."""
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        await client.publish(self._next, json.dumps(request).encode(), reply=inbox)
        async with asyncio.timeout(timeout):
            while len(self.arrived) < enough and inbox not in self._statuses:
                if self._ended:
                    raise ConnectionError("the connection was closed")
                self._changed.clear()
                await self._changed.wait()
        status = self._statuses.pop(inbox, "")
        if len(self._statuses) > MAX_STATUSES:
            self._statuses.clear()
        if status and not status.startswith(("404", "408")):
            raise ConnectionError(f"the consumer {self.durable} responded {status}")

    async def _on_message(self, message: Msg) -> None:
        if message.subject.startswith(self._inbox):
            headers = message.headers or {}
            status = f"{headers.get('Status', '')} {headers.get('Description', '')}".strip()
            if not status.startswith("100"):  # a heartbeat
                self._statuses[message.subject] = status or "?"
        else:
            self.arrived.append(message)
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()


async def _nak(client: Client, messages: Sequence[Msg] | deque[Msg]) -> None:
    for one in messages:
        await one.nak()
    await client.flush()


def _read(received: Msg) -> Message:
    """A received message. Its id is its Nats-Msg-Id, else its sequence number in the stream with
    its time: the numbers of a stream that was deleted and created again start at 1. An id that lost
    bytes when it was decoded may not be unique, so it is not used."""
    headers = {name: str(value) for name, value in (received.headers or {}).items()}
    id = headers.pop(MESSAGE_ID, None)
    if not id or LOST in id:
        facts = received.metadata
        stored = facts.timestamp.timestamp()
        id = f"{facts.stream}-{facts.sequence.stream}-{stored:.6f}"
    headers.pop("Nats-Expected-Stream", None)
    key, headers = from_wire(headers)
    return Message(id, received.data, key, headers, receipt=received)


@contextmanager
def _outages() -> Iterator[None]:
    """Raise errors of the connection and of the server as `SinkDown`."""
    from nats.errors import Error

    try:
        yield
    except (Error, OSError, TimeoutError) as error:
        raise SinkDown(f"{type(error).__name__}: {error}") from error


async def _ignore(error: Exception) -> None:
    """Ignore an error that calls raise as well."""


def _fits(name: str, value: str) -> bool:
    ours = name.lower().startswith("nats-")
    return not ours and bool(_NAME.match(name)) and bool(_VALUE.match(value))


def _checked_url(url: object) -> str:
    schemes = ("nats://", "tls://", "ws://", "wss://")
    if not isinstance(url, str) or not all(one.startswith(schemes) for one in url.split(",")):
        raise InvalidOption(option="url", reason="must be like nats://127.0.0.1:4222")
    return url
