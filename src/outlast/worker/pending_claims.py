"""Pending claims: claim requests of a worker whose responses it has not received."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..model.claim import Claim
from ..ops.claim import ClaimRequest


@dataclass(frozen=True, slots=True, eq=False)
class PendingClaim:
    request: ClaimRequest
    number: int  # of the request in `ClaimResponses`
    answer: asyncio.Task[tuple[list[Claim], float]]


async def next_response(claims: list[PendingClaim]) -> PendingClaim:
    """Wait for the first response, and remove its claim from the list. A stuck claim does not delay
    the others; if this is cancelled, all stay in the list."""
    answers = [claim.answer for claim in claims]
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    answered = next(claim for claim in claims if claim.answer.done())
    claims.remove(answered)
    return answered
