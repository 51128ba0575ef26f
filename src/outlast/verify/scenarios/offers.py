"""Offers to remote workers: offered, accepted, withdrawn, and accepted too late."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.claim import Claim
from ...ops.claim import ClaimCursor
from ...ops.offer import OfferRequest, hold, offer, record_late, withdraw
from ..scenario_context import ScenarioContext
from .claims import make_event
from .scenario import scenario


@scenario("offer")
def offered(ctx: ScenarioContext) -> Iterator[None]:
    """Offer a job; a server that dies here has charged no attempt."""
    ctx.enqueue(3)
    yield
    first, *_ = ctx.run(offer, offer_request(ctx, 1))
    ctx.run(offer, offer_request(ctx, 1, ClaimCursor(first.priority, first.run_at, first.id)))
    ctx.run(offer, offer_request(ctx, 1))


@scenario("accept")
def accepted(ctx: ScenarioContext) -> Iterator[None]:
    """Accept an offer by the first renewal, and renew again."""
    claims = offered_claims(ctx, 2)
    yield
    ctx.run(hold, claims, ctx.lease)
    ctx.run(hold, claims, ctx.lease)


@scenario("withdraw")
def withdrawn(ctx: ScenarioContext) -> Iterator[None]:
    """Offers that were not accepted are withdrawn, and accepted ones stay."""
    first, *others = offered_claims(ctx, 3)
    yield
    ctx.run(hold, [first], ctx.lease)
    ctx.run(withdraw, server_id(ctx), [first, *others])


@scenario("late-events")
def late(ctx: ScenarioContext) -> Iterator[None]:
    """Events of a dead worker are stored once, however often they are sent."""
    claims = offered_claims(ctx, 2)
    events = [make_event(claim, n) for n, claim in enumerate(claims)]
    yield
    ctx.run(record_late, [{**one, "attempt": 1} for one in events])
    ctx.run(record_late, [{**one, "attempt": 1} for one in events])


def server_id(ctx: ScenarioContext) -> str:
    return f"offer-{ctx.queue}"


def offer_request(
    ctx: ScenarioContext, limit: int, cursor: ClaimCursor | None = None
) -> OfferRequest:
    tasks = (ctx.work.mark.name,)
    return OfferRequest(server_id(ctx), ctx.queue, limit, ctx.lease, cursor=cursor, tasks=tasks)


def offered_claims(ctx: ScenarioContext, number: int) -> list[Claim]:
    """Claims offered to the context's own worker."""
    ctx.enqueue(number)
    claims = ctx.run(offer, offer_request(ctx, number))
    return [claim._replace(worker=ctx.owner, offered_by=server_id(ctx)) for claim in claims]
