"""HTTP client: the connection to a server. Its errors are either transient or final."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..model.errors import (
    ClaimLost,
    InvalidSetting,
    OutlastError,
    ServerRefused,
    ServerUnavailable,
    Unsupported,
)
from ..protocol import NDJSON

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

CONNECT_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 20.0  # for one call


class PayloadRejected(OutlastError):
    """The server refused a request body."""

    template = "The server refused the request: {reason}."
    reason: str


class ServerClient:
    """A client for one event loop: its connections cannot be shared with another loop."""

    def __init__(self, server: str, token: str | None) -> None:
        self.server = _checked_url(server)
        self._token = token
        self._client: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<ServerClient {self.server}>"  # without the token

    def twin(self) -> ServerClient:
        return ServerClient(self.server, self._token)

    async def post(self, path: str, body: object) -> Any:
        text = body if isinstance(body, str) else json.dumps(body)
        return await self._call("POST", path, content=text)

    async def delete(self, path: str, params: Mapping[str, object]) -> object:
        return await self._call("DELETE", path, params=params)

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        with _translate_errors():
            answer = await self.client.request(method, path, **options)
        _raise_for_status(answer.status_code, answer.text)
        return _parse(answer.content) if answer.content else None

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, Any], max_silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The server's frames as they arrive; fails after a maximum of silence."""
        import httpx

        timeout = httpx.Timeout(CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=max_silence)
        options: dict[str, Any] = {"headers": {"accept": NDJSON}, "timeout": timeout}
        with _translate_errors():
            async with self.client.stream("GET", path, params=dict(params), **options) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    _raise_for_status(answer.status_code, answer.text)
                yield answer.aiter_bytes()

    @property
    def client(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> httpx.AsyncClient:
        try:
            import httpx
        except ImportError as error:
            reason = "a remote worker needs the extra: pip install 'outlast[remote]'"
            raise Unsupported(reason=reason) from error
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        timeout = httpx.Timeout(CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        return httpx.AsyncClient(base_url=self.server, headers=headers, timeout=timeout)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


@contextmanager
def _translate_errors() -> Iterator[None]:
    import httpx

    try:
        yield
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise ServerUnavailable(reason=f"{type(error).__name__} {error}".strip()) from error


def _parse(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ServerUnavailable(reason="its response is not JSON") from error


def _raise_for_status(status: int, text: str) -> None:
    if status < 300:
        return
    detail = _detail(text) or f"it responded {status}"
    if status in {401, 403}:
        raise ServerRefused(reason=detail)
    if status == 409:
        raise ClaimLost(detail)
    if status in {413, 422}:
        raise PayloadRejected(reason=detail)
    if status in {408, 429} or status >= 500:
        raise ServerUnavailable(reason=detail)
    raise ServerRefused(reason=f"{detail} (is this the address of an Outlast service?)")


def _detail(text: str) -> str:
    try:
        return str(json.loads(text)["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return ""


def _checked_url(server: str) -> str:
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        reason = "must be like https://jobs.example.org, without a name or password in it"
        raise InvalidSetting(field="server", reason=reason)
    return server.rstrip("/")
