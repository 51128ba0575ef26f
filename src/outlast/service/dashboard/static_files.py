"""Style sheets and scripts, with a content hash in the URL: browsers may cache them for ever."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from ..problems import NotFound
from ..request import RequestContext
from ..route import PUBLIC, Route
from .links import Links

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
IMMUTABLE = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    kind: str
    hash: str


@cache
def load_files() -> dict[str, StaticFile]:
    found = {}
    for file in files("outlast.service.dashboard").joinpath("static").iterdir():
        kind = MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            found[file.name] = StaticFile(content, kind, hashlib.sha256(content).hexdigest()[:16])
    return found


def static_url(links: Links, name: str) -> str:
    """The URL of a file, with its hash: a cached copy is never stale."""
    return links("/static", name, v=load_files()[name].hash)


async def static_file(call: RequestContext) -> Response:
    return file_response(call.request)


def file_response(request: Request) -> Response:
    file = load_files().get(request.path_params["name"])
    if file is None:
        raise NotFound("no such file")
    tag = f'"{file.hash}"'
    known = request.query_params.get("v") == file.hash
    headers = {"etag": tag, "cache-control": IMMUTABLE if known else "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers={**headers, "content-type": file.kind})


ROUTES = (
    Route(
        "GET",
        "/static/{name}",
        PUBLIC,
        static_file,
        "Style sheets and scripts of the pages",
        media=tuple(kind.partition(";")[0] for kind in MEDIA_TYPES.values()),
        statuses=(304, 404),
    ),
)
