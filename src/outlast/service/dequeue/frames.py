"""How what the server says looks on the line: server-sent events, or one JSON object a line."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from pydantic_core import to_json

from ...model.job import Claim

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"

MOST_BYTES = 256 * 1024  # of one frame, unless a single job is larger
# What is told of a claim. The rest is no business of the worker's.
_OURS = {"tied", "hooked", "worker", "offered_by"}
TOLD = tuple(name for name in Claim._fields if name not in _OURS)

_told = attrgetter(*TOLD)

Frame = dict[str, Any]
Sign = Callable[[Claim], str]


class Format(ABC):
    """`write` makes a frame of one that has a `type`; `silence` is what keeps a line alive."""

    media: str
    silence: bytes

    @abstractmethod
    def write(self, frame: Frame) -> bytes: ...


class ServerSentEvents(Format):
    media = SSE
    silence = b": still here\n\n"

    def write(self, frame: Frame) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (frame["type"].encode(), _line(frame))


class JsonLines(Format):
    media = NDJSON
    silence = b"\n"

    def write(self, frame: Frame) -> bytes:
        return _line(frame) + b"\n"


def chosen(accept: str) -> Format:
    """By the Accept header; who does not say gets JSON lines."""
    return ServerSentEvents() if SSE in accept.lower() else JsonLines()


def offers(claims: Sequence[Claim], sign: Sign) -> Iterator[Frame]:
    """Frames of a size that a client can take in one bite."""
    jobs: list[dict[str, Any]] = []
    size = 0
    for claim in claims:
        if jobs and size + len(claim.args) > MOST_BYTES:
            yield {"type": "offers", "jobs": jobs}
            jobs, size = [], 0
        jobs.append(_job(claim, sign))
        size += len(claim.args)
    if jobs:
        yield {"type": "offers", "jobs": jobs}


def _job(claim: Claim, sign: Sign) -> dict[str, Any]:
    """`args` stays the JSON text that it is: what cannot be read concerns its own job alone."""
    told = dict(zip(TOLD, _told(claim), strict=True))
    told["token"] = sign(claim)
    return told


def _line(frame: Frame) -> bytes:
    try:
        return to_json(frame)
    except ValueError:  # a row may hold what is no UTF-8
        return json.dumps(frame, separators=(",", ":")).encode()
