"""Deliver one message: a single POST with a deadline, whatever the receiver does.

    2xx                          accepted, as soon as its head has arrived
    408, 429, 5xx, no response   retried, by the policy; not before a Retry-After
    any other                    never retried; 3xx, too, since redirects are not followed

Each delivery opens its own connection: the receiver may have closed one that was kept open, and the
delivery would fail for no reason. The certificates, which take long to load, are shared.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import Permanent, RetryLater, Unsupported
from ..model.safe_text import storable_text
from .circuit_breaker import CircuitOpen, DestinationBreaker

if TYPE_CHECKING:
    import ssl

    import httpx

MAX_RETRY_AFTER_S = 3600.0  # seconds that a receiver may ask for
MAX_RESPONSE_READ = 2_000  # bytes of a response without success
MAX_RESPONSE_SHOWN = 500  # characters of it in the error


class DeliveryFailed(RetryLater):
    """The delivery was not accepted, and may be the next time."""


class ReceiverResponse(NamedTuple):
    status: int
    retry_after: str = ""
    excerpt: str = ""

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_retryable(self) -> bool:
        return self.status in {408, 429} or self.status >= 500


@dataclass(frozen=True)
class Destination:
    """The receiver of messages. The URL is never shown: it may contain a secret."""

    name: str
    url: str = field(repr=False)
    timeout: float
    breaker: DestinationBreaker = field(
        default_factory=DestinationBreaker, repr=False, compare=False
    )

    async def post(self, body: bytes, headers: dict[str, str]) -> ReceiverResponse:
        """The response of a receiver that accepted the message."""
        response = await self._request(body, headers)
        if response.accepted:
            return response
        message = f"{self.name} answered {response.status}: {response.excerpt}".removesuffix(": ")
        if response.is_retryable:
            raise DeliveryFailed(_retry_delay(response.retry_after), message, spent=True)
        raise Permanent(message)

    async def _request(self, body: bytes, headers: dict[str, str]) -> ReceiverResponse:
        httpx, answer_head, content = _httpx(), None, bytearray()
        try:
            with self.breaker.guard(self.timeout):
                async with (
                    asyncio.timeout(self.timeout),
                    httpx.AsyncClient(**_client_options()) as client,
                    client.stream("POST", self.url, content=body, headers=headers) as response,
                ):
                    answer_head = ReceiverResponse(
                        response.status_code, response.headers.get("retry-after", "")
                    )
                    if not answer_head.accepted:
                        await _read(response, content)
        except CircuitOpen:
            raise self._failed("did not respond a moment ago, and is being probed") from None
        except TimeoutError:
            if answer_head is None:
                raise self._failed(f"did not respond within {self.timeout:g} s") from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            if answer_head is None:
                reason = f"cannot be reached: {type(error).__name__} {error}".strip()
                raise self._failed(reason) from None
        assert answer_head is not None
        return answer_head._replace(excerpt=_excerpt(content))

    def _failed(self, reason: str) -> DeliveryFailed:
        return DeliveryFailed(0.0, f"{self.name} {reason}", spent=True)


async def _read(response: httpx.Response, content: bytearray) -> None:
    """The start of the body, still compressed: a few bytes may expand to very many."""
    async for chunk in response.aiter_raw():
        content += chunk[: MAX_RESPONSE_READ - len(content)]
        if len(content) >= MAX_RESPONSE_READ:
            break


def _excerpt(content: bytearray) -> str:
    text = content.decode("utf-8", "replace")
    return storable_text(
        "".join(c if c.isprintable() else " " for c in text).strip()[:MAX_RESPONSE_SHOWN],
        MAX_RESPONSE_SHOWN,
    )


def _retry_delay(retry_after: str) -> float:
    """The seconds of a Retry-After header, given as a number or a date, within bounds."""
    value = retry_after.strip()
    try:
        if value.isascii() and value.isdigit():
            seconds = float(value)
        else:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


def _client_options() -> dict[str, object]:
    """Client options: no redirects, which may lead anywhere; one deadline for the whole call, kept
    by the caller."""
    return {"verify": _certificates(), "timeout": None, "follow_redirects": False}


@cache
def _certificates() -> ssl.SSLContext:
    return _httpx().create_ssl_context()  # type: ignore[no-any-return]


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        reason = "a webhook needs the extra: pip install 'outlast[webhook]'"
        raise Unsupported(reason=reason) from error
    return httpx
