"""Streamed output of claims that are killed, superseded or stale."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...model.claim import Claim
from ...model.lifecycle import Outcome
from ...model.stream import STREAM, StreamCursor, chunks_after
from ...ops.streams import store_stream, stream_tail
from ..scenario_context import ScenarioContext
from .scenario import scenario

LIMIT_BYTES = 100  # of one job: a later attempt removes earlier output
ROWS = 3


def _stream(ctx: ScenarioContext, claim: Claim) -> None:
    """Stream rows that name their claim and position."""
    for n in range(ROWS):
        data = json.dumps([f"{claim.fence}.{claim.worker[-4:]}.{n}"])
        row = claim.event_row(STREAM, data, n)
        row["first"] = n == 0
        ctx.run(store_stream, [row], LIMIT_BYTES)


def _gaps(ctx: ScenarioContext) -> Iterator[str]:
    """Claims whose stored output is not a prefix of their stream."""
    for job in ctx.ol.jobs(queue=ctx.queue):
        claims: dict[int, list[Any]] = {}
        rows = ctx.ol.store.run(stream_tail, job.id)
        for chunk in chunks_after(StreamCursor(), rows):
            if chunk.kind == "text":
                claims.setdefault(chunk.fence, []).append(chunk.text)
        for fence, texts in claims.items():
            places = [int(text.rpartition(".")[2]) for text in texts]
            owners = {text.rpartition(".")[0] for text in texts}
            if places != list(range(len(texts))) or len(owners) != 1:
                yield f"job {job.id}, claim {fence}: the output is {texts}"


@scenario("stream", owner=True)
def stream(ctx: ScenarioContext) -> Iterator[None]:
    """Output is stored row by row, after that of an earlier claim; then the job ends."""
    (claim,) = ctx.enqueue_and_claim()
    _stream(ctx, claim)
    ctx.finish([(claim, ctx.attempt_end(Outcome.RELEASED, claim))])
    (again,) = ctx.record_begun(ctx.claim(1))
    yield
    _stream(ctx, again)
    ctx.finish([(again, ctx.attempt_end(Outcome.SUCCEEDED, again))])


stream.on_retry(_gaps)
