"""One POST, with an end: whatever the other side does, it is over when its time is.

    2xx                          taken, as soon as its head has come
    408, 429, 5xx, no answer     tried again, by the policy; not before a Retry-After
    any other                    never tried again: 3xx too, since a redirect is not followed

Each has a connection of its own: one that was kept open may have been closed by the other side,
and then a delivery fails that nothing is wrong with. What takes long, the certificates, is shared.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import Permanent, RetryLater, Unsupported
from ..model.text import clean
from .silence import Silence, Silent

if TYPE_CHECKING:
    import ssl

    import httpx

LONGEST_WAIT = 3600.0  # seconds that a receiver may ask for
READ = 2_000  # bytes of an answer that was no yes
SHOWN = 500  # characters of it


class Undelivered(RetryLater):
    """It was not taken, and may be the next time."""


class Answer(NamedTuple):
    status: int
    retry_after: str = ""
    said: str = ""

    @property
    def taken(self) -> bool:
        return 200 <= self.status < 300

    @property
    def may_change(self) -> bool:
        return self.status in {408, 429} or self.status >= 500


@dataclass(frozen=True)
class Receiver:
    """Where messages go. The url is never told: it may be a secret in itself."""

    name: str
    url: str = field(repr=False)
    timeout: float
    silence: Silence = field(default_factory=Silence, repr=False, compare=False)

    async def post(self, body: bytes, headers: dict[str, str]) -> Answer:
        """The answer of one who took it."""
        answer = await self._asked(body, headers)
        if answer.taken:
            return answer
        told = f"{self.name} answered {answer.status}: {answer.said}".removesuffix(": ")
        if answer.may_change:
            raise Undelivered(_wait(answer.retry_after), told, spent=True)
        raise Permanent(told)

    async def _asked(self, body: bytes, headers: dict[str, str]) -> Answer:
        httpx, answer, said = _httpx(), None, bytearray()
        try:
            with self.silence.broken(self.timeout):
                async with (
                    asyncio.timeout(self.timeout),
                    httpx.AsyncClient(**_manners()) as client,
                    client.stream("POST", self.url, content=body, headers=headers) as came,
                ):
                    answer = Answer(came.status_code, came.headers.get("retry-after", ""))
                    if not answer.taken:
                        await _read(came, said)
        except Silent:
            raise self._failed("did not answer a moment ago, and is being asked") from None
        except TimeoutError:
            if answer is None:
                raise self._failed(f"did not answer within {self.timeout:g} s") from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            if answer is None:
                told = f"cannot be reached: {type(error).__name__} {error}".strip()
                raise self._failed(told) from None
        assert answer is not None
        return answer._replace(said=_shown(said))

    def _failed(self, how: str) -> Undelivered:
        return Undelivered(0.0, f"{self.name} {how}", spent=True)


async def _read(came: httpx.Response, said: bytearray) -> None:
    """The beginning. As it came, not unpacked: a few bytes may stand for very many."""
    async for some in came.aiter_raw():
        said += some[: READ - len(said)]
        if len(said) >= READ:
            break


def _shown(said: bytearray) -> str:
    text = said.decode("utf-8", "replace")
    return clean("".join(c if c.isprintable() else " " for c in text).strip()[:SHOWN], SHOWN)


def _wait(retry_after: str) -> float:
    """Seconds, or a date; within bounds, whatever it says."""
    said = retry_after.strip()
    try:
        if said.isascii() and said.isdigit():
            seconds = float(said)
        else:
            seconds = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_WAIT)


def _manners() -> dict[str, Any]:
    """No redirects, which may lead anywhere; our own deadline, which is for the whole."""
    return {"verify": _certificates(), "timeout": None, "follow_redirects": False}


@cache
def _certificates() -> ssl.SSLContext:
    return _httpx().create_ssl_context()  # type: ignore[no-any-return]


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        told = "a webhook needs the extra: pip install 'outlast[webhook]'"
        raise Unsupported(reason=told) from error
    return httpx
