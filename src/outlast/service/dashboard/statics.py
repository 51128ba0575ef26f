"""Style and script: named by what they hold, so that a browser may keep them for ever."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.responses import Response

from ..calls import Call
from ..problems import NotFound
from ..route import PUBLIC, Route
from .links import Links

KINDS = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Kept:
    content: bytes
    kind: str
    hash: str


@cache
def kept() -> dict[str, Kept]:
    found = {}
    for file in files("outlast.service.dashboard").joinpath("static").iterdir():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            found[file.name] = Kept(content, kind, hashlib.sha256(content).hexdigest()[:16])
    return found


def address(links: Links, name: str) -> str:
    """Where a file is. It moves when it changes: what a browser keeps is never stale."""
    return links("/static", name, v=kept()[name].hash)


async def static_file(call: Call) -> Response:
    file = kept().get(call.request.path_params["name"])
    if file is None:
        raise NotFound("there is no such file")
    tag = f'"{file.hash}"'
    known = call.request.query_params.get("v") == file.hash
    headers = {"etag": tag, "cache-control": FOR_EVER if known else "no-cache"}
    if tag in call.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers={**headers, "content-type": file.kind})


ROUTES = (
    Route("GET", "/static/{name}", PUBLIC, static_file, "Style and script of the pages",
          media=tuple(kind.partition(";")[0] for kind in KINDS.values()), statuses=(304, 404)),
)  # fmt: skip
