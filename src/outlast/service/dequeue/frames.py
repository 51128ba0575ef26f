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

MAX_FRAME_BYTES = 256 * 1024  # of one frame, unless a single job is larger
# What is told of a claim. The rest is no business of the worker's.
_PRIVATE_FIELDS = {"has_dependents", "has_hooks", "worker", "offered_by"}
CLAIM_FIELDS = tuple(name for name in Claim._fields if name not in _PRIVATE_FIELDS)

_claim_values = attrgetter(*CLAIM_FIELDS)

FrameFields = dict[str, Any]
Sign = Callable[[Claim], str]


class StreamFormat(ABC):
    """`write` makes a frame of one that has a `type`; `keep_alive` is what keeps a line alive."""

    media: str
    keep_alive: bytes

    @abstractmethod
    def write(self, frame: FrameFields) -> bytes: ...


class ServerSentEvents(StreamFormat):
    media = SSE
    keep_alive = b": still here\n\n"

    def write(self, frame: FrameFields) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (frame["type"].encode(), _line(frame))


class JsonLines(StreamFormat):
    media = NDJSON
    keep_alive = b"\n"

    def write(self, frame: FrameFields) -> bytes:
        return _line(frame) + b"\n"


def format_for(accept: str) -> StreamFormat:
    """By the Accept header; who does not say gets JSON lines."""
    return ServerSentEvents() if SSE in accept.lower() else JsonLines()


def offer_frames(claims: Sequence[Claim], sign: Sign) -> Iterator[FrameFields]:
    """Frames of a size that a client can take in one bite."""
    jobs: list[dict[str, Any]] = []
    size = 0
    for claim in claims:
        if jobs and size + len(claim.args) > MAX_FRAME_BYTES:
            yield {"type": "offers", "jobs": jobs}
            jobs, size = [], 0
        jobs.append(_job_json(claim, sign))
        size += len(claim.args)
    if jobs:
        yield {"type": "offers", "jobs": jobs}


def _job_json(claim: Claim, sign: Sign) -> dict[str, Any]:
    """`args` stays the JSON text that it is: what cannot be read concerns its own job alone."""
    fields = dict(zip(CLAIM_FIELDS, _claim_values(claim), strict=True))
    fields["token"] = sign(claim)
    return fields


def _line(frame: FrameFields) -> bytes:
    try:
        return to_json(frame)
    except ValueError:  # a row may hold what is no UTF-8
        return json.dumps(frame, separators=(",", ":")).encode()
