"""What a request brings, read within limits: body and query, each as the route's model has it."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from ..model.strict_json import read
from .apart import apart
from .problems import BadRequest, Invalid, TooBig, WrongMedia

M = TypeVar("M", bound=BaseModel)

LONGEST_QUERY = 8_000  # characters
MOST_LISTED = 1_000  # mistakes: to list a hundred thousand would keep everybody waiting
LONGEST_WAIT = 30.0  # seconds for a body to come


def kind_of(request: Request) -> str:
    """What the body says it is."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def form_of(request: Request, model: type[M], most: int) -> M:
    """What a page's form sends."""
    text = (await read_body(request, most)).decode("utf-8", "replace")
    try:
        said = parse_qs(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise BadRequest("the form has too many fields") from None
    return _validated(model, {name: values[-1] for name, values in said.items()})


async def body_of(request: Request, model: type[M], most: int) -> tuple[M, int]:
    """The body as the model wants it, and how many bytes it took."""
    if kind_of(request) != "application/json":
        raise WrongMedia("send application/json")
    data = await read_body(request, most)
    return await apart(len(data), lambda: _judged(model, data)), len(data)


def _judged(model: type[M], data: bytes) -> M:
    try:
        said = read(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {str(error)[:200]}") from None
    return _validated(model, said)


def query_of(request: Request, model: type[M]) -> M:
    if len(request.url.query) > LONGEST_QUERY:
        raise TooBig(f"the query is longer than {LONGEST_QUERY} characters")
    said: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in said:
            raise Invalid(f"{name!r:.80} is given twice", problems=[_told(name, "is given twice")])
        said[name] = value
    return _validated(model, said)


async def read_body(request: Request, most: int) -> bytes:
    """All of it, but never more than allowed: what is announced is not believed."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(LONGEST_WAIT):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise TooBig(f"the body is larger than {most:,} bytes")
                parts.append(part)
    except (ClientDisconnect, TimeoutError):
        raise BadRequest("the body did not come to its end") from None
    return b"".join(parts)


def _validated(model: type[M], said: Any) -> M:
    try:
        return model.model_validate(said)
    except ValidationError as error:
        if (number := error.error_count()) > MOST_LISTED:
            raise Invalid(f"what was sent cannot be used: it has {number:,} mistakes") from None
        found = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [_told(".".join(map(str, one["loc"])), one["msg"]) for one in found[:100]]
        raise Invalid("what was sent cannot be used", problems=problems) from None


def _told(path: str, message: str) -> dict[str, str]:
    return {"path": path[:200], "message": message[:500]}
