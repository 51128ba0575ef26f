"""Parsing of requests within limits: body and query, validated by the route's models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from ..model.strict_json import read
from .offload import in_thread_if_large
from .problems import BadRequest, PayloadTooLarge, UnprocessableBody, UnsupportedMediaType

M = TypeVar("M", bound=BaseModel)

MAX_QUERY_LENGTH = 8_000  # characters
MAX_LISTED_PROBLEMS = 1_000  # a list of a hundred thousand would block the event loop
BODY_TIMEOUT_S = 30.0  # seconds for the body to arrive


def media_type_of(request: Request) -> str:
    """The content type of the body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def form_of(request: Request, model: type[M], max_bytes: int) -> M:
    """The validated form of a page."""
    return _validated(model, await fields_of(request, max_bytes))


async def fields_of(request: Request, max_bytes: int) -> dict[str, str]:
    """The fields of a form."""
    text = (await read_body(request, max_bytes)).decode("utf-8", "replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise BadRequest("the form has too many fields") from None
    return {name: values[-1] for name, values in fields.items()}


async def body_of(request: Request, model: type[M], max_bytes: int) -> tuple[M, int]:
    """The validated body, and its size in bytes."""
    if media_type_of(request) != "application/json":
        raise UnsupportedMediaType("send application/json")
    data = await read_body(request, max_bytes)
    return await in_thread_if_large(len(data), lambda: _parse_json(model, data)), len(data)


def _parse_json(model: type[M], data: bytes) -> M:
    try:
        parsed = read(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {str(error)[:200]}") from None
    return _validated(model, parsed)


def query_of(request: Request, model: type[M]) -> M:
    if len(request.url.query) > MAX_QUERY_LENGTH:
        raise PayloadTooLarge(f"the query is longer than {MAX_QUERY_LENGTH} characters")
    params: dict[str, object] = {}
    repeated: dict[str, list[str]] = {}  # several checkboxes of one name
    repeatable: frozenset[str] = getattr(model, "repeatable", frozenset())
    for name, value in request.query_params.multi_items():
        if name in repeatable:
            repeated.setdefault(name, []).append(value)
            continue
        if name in params:
            raise UnprocessableBody(
                f"{name!r:.80} is given twice", problems=[_problem(name, "is given twice")]
            )
        params[name] = value
    return _validated(model, params | repeated)


async def read_body(
    request: Request, max_bytes: int, count: Callable[[int], None] = lambda size: None
) -> bytes:
    """The whole body, up to the limit, whatever its declared length. `count` is called with the
    size of each part, and may refuse it."""
    too_large = PayloadTooLarge(f"the body is larger than {max_bytes:,} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise too_large  # before it is read
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise too_large
                count(len(part))
                parts.append(part)
    except (ClientDisconnect, TimeoutError):
        raise BadRequest("the body is incomplete") from None
    return b"".join(parts)


def _validated(model: type[M], data: object) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        if (number := error.error_count()) > MAX_LISTED_PROBLEMS:
            raise UnprocessableBody(f"the request is invalid: it has {number:,} mistakes") from None
        found = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [_problem(".".join(map(str, one["loc"])), one["msg"]) for one in found[:100]]
        raise UnprocessableBody("the request is invalid", problems=problems) from None


def _problem(path: str, message: str) -> dict[str, str]:
    return {"path": path[:200], "message": message[:500]}
