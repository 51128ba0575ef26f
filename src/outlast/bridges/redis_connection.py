"""A bridge's connection to Redis, and the classification of its errors as outages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidOption
from .protocols import SinkDown

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis.asyncio as redis_client

# First words of errors about the state of the server: no message is at fault. Errors that the
# client maps to a type have lost their first word.
DOWN = ("NOREPLICAS", "MISCONF", "BUSY", "NOGROUP")
SOCKET_TIMEOUT_S = 10.0  # unless set in the URL


class RedisConnection:
    """A client of one server, between `open` and `close`."""

    def __init__(self, url: str) -> None:
        self._url = _checked_url(url)
        self._client: redis_client.Redis | None = None

    async def open(self) -> None:
        import redis.asyncio as redis_client

        self._client = redis_client.from_url(self._url, socket_timeout=SOCKET_TIMEOUT_S)
        # Values are bytes of any program, whatever the URL sets.
        self._client.connection_pool.connection_kwargs["decode_responses"] = False
        with redis_outages():
            await self._client.ping()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @property
    def client(self) -> Any:
        if self._client is None:
            raise SinkDown("it is not open")
        return self._client

    def __repr__(self) -> str:
        return _shown_url(self._url)


@contextmanager
def redis_outages() -> Iterator[None]:
    """Raise errors of the connection and of the server's state as `SinkDown`."""
    from redis import exceptions

    away = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.AuthenticationError)
    try:
        yield
    except (*away, OSError) as error:
        raise SinkDown(f"{type(error).__name__}: {error}") from error
    except exceptions.RedisError as error:
        if is_down(error):
            raise SinkDown(f"{type(error).__name__}: {error}") from error
        raise


def is_down(error: Exception) -> bool:
    """Whether an error is about the state of the server."""
    from redis import exceptions

    kinds = (
        exceptions.ClusterDownError, exceptions.ReadOnlyError, exceptions.OutOfMemoryError,
        exceptions.ConnectionError, exceptions.TimeoutError,
    )  # fmt: skip
    return isinstance(error, kinds) or str(error).partition(" ")[0] in DOWN


def _checked_url(url: str) -> str:
    if not isinstance(url, str) or not url.startswith(("redis://", "rediss://", "unix://")):
        raise InvalidOption(option="url", reason="must be like redis://127.0.0.1:6379/0")
    return url


def _shown_url(url: str) -> str:
    """The URL without passwords, which may contain any character; empty if they cannot be
    separated."""
    scheme, _, rest = url.partition("://")
    hidden, _, shown = rest.rpartition("@")
    return f"{scheme}://…" if "?" in hidden else f"{scheme}://{shown.partition('?')[0]}"
