"""How what the server says looks on the line: server-sent events, or one JSON object a line."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...model.job import Claim

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"

MOST_BYTES = 256 * 1024  # of one frame, unless a single job is larger
UNTOLD = ("tied", "hooked", "worker")  # of a claim: no business of the worker's

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
        return f"event: {frame['type']}\ndata: {_line(frame)}\n\n".encode()


class JsonLines(Format):
    media = NDJSON
    silence = b"\n"

    def write(self, frame: Frame) -> bytes:
        return f"{_line(frame)}\n".encode()


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
    told = claim._asdict()
    for name in UNTOLD:
        del told[name]
    told["token"] = sign(claim)
    return told


def _line(frame: Frame) -> str:
    return json.dumps(frame, separators=(",", ":"))
