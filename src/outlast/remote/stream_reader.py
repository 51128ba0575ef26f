"""What comes down a stream: JSON lines, cut out of whatever pieces the network makes of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from ..model.errors import ServerUnavailable
from ..model.job import Claim

MAX_LINE_BYTES = 64 * 1024 * 1024  # bytes of one line

CLAIM_FIELDS = Claim._fields[: Claim._fields.index("worker")]


async def read_frames(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """One frame after the other; empty lines only say that the server is there."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for client in lines:
            if client.strip():
                yield _frame(client)
        if len(rest) > MAX_LINE_BYTES:
            raise ServerUnavailable(reason="it sends a line without end")


def _frame(client: bytes) -> dict[str, Any]:
    try:
        frame = json.loads(client)
    except ValueError:
        frame = None
    if not isinstance(frame, dict) or "type" not in frame:
        raise ServerUnavailable(reason="it sends what is no frame")
    return frame


def claim_of(job: dict[str, Any], worker: str) -> Claim:
    """An offered job as a claim of ours. What a newer server says beside is left out."""
    return Claim(**{name: job[name] for name in CLAIM_FIELDS}, worker=worker, flow=job.get("flow"))
