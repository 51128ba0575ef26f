"""Claims that a worker has asked for, and has not looked at yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..model.claim import Claim
from ..ops.claim import ClaimRequest


@dataclass(frozen=True, slots=True, eq=False)
class ClaimUnderWay:
    request: ClaimRequest
    number: int  # of the request, as `ClaimResponses` counts
    answer: asyncio.Task[tuple[list[Claim], float]]


async def next_answer(claims: list[ClaimUnderWay]) -> ClaimUnderWay:
    """Wait for one of them, and take it out. A stuck one does not hold up the others' jobs; if
    this is cancelled, all stay."""
    answers = [claim.answer for claim in claims]
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    answered = next(claim for claim in claims if claim.answer.done())
    claims.remove(answered)
    return answered
