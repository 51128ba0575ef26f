"""API tokens, signing secrets, and erasure of an ended job."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.api_token import new_token
from ...model.errors import Erased
from ...model.lifecycle import Outcome
from ...ops import sessions, tokens
from ...ops.erase import erase, take_result
from ..scenario_context import ScenarioContext
from .scenario import scenario


@scenario("token")
def token(ctx: ScenarioContext) -> Iterator[None]:
    """A token is created, used and revoked: after the acknowledged revocation it is refused."""
    _, new = new_token(ctx.queue, ["read"])
    yield
    ctx.run(tokens.create, new, "verify")
    if ctx.run(tokens.by_hash, new.hash) is None:
        ctx.report("I4", "zombie", "a created token is not valid")
    ctx.run(tokens.mark_used, new.id)
    ctx.run(tokens.revoke, new.id, "verify")
    if ctx.run(tokens.by_hash, new.hash) is not None:
        ctx.report("I4", "zombie", "a revoked token is valid")


@scenario("session")
def session(ctx: ScenarioContext) -> Iterator[None]:
    """A browser logs in and out: after that, its session is refused."""
    _, new = new_token(ctx.queue, ["read"])
    ctx.run(tokens.create, new, "verify")
    yield
    ctx.run(sessions.begin, ctx.queue, new.id, 60.0)
    if ctx.run(sessions.token_of, ctx.queue) is None:
        ctx.report("I4", "zombie", "a started session is not valid")
    ctx.run(sessions.end, ctx.queue)
    if ctx.run(sessions.token_of, ctx.queue) is not None:
        ctx.report("I4", "zombie", "an ended session is valid")


@scenario("wrong-tokens")
def wrong_tokens(ctx: ScenarioContext) -> Iterator[None]:
    yield
    ctx.run(tokens.record_wrong_tokens, 3, ["verify"])


@scenario("signing-secret")
def signing_secret(ctx: ScenarioContext) -> Iterator[None]:
    """Wherever a process dies, all processes sign with the same secret."""
    yield
    stored = ctx.run(tokens.secret, ctx.queue, "first")
    if ctx.run(tokens.secret, ctx.queue, "second") != stored:
        ctx.report("I4", "zombie", "two secrets of one name")


@signing_secret.on_retry
def same_secret(ctx: ScenarioContext) -> Iterator[str]:
    if ctx.run(tokens.secret, ctx.queue, "third") == "second":
        yield "a secret was replaced by another"


@scenario("forget")
def forget_ended(ctx: ScenarioContext) -> Iterator[None]:
    (claim,) = ctx.enqueue_and_claim(1, "dead")
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim))])
    yield
    ctx.run(erase, claim.id, "verify")


@forget_ended.on_retry
def forget_again(ctx: ScenarioContext) -> Iterator[str]:
    """An erasure is done completely or not at all; a repeat completes it."""
    for job in ctx.ol.jobs(queue=ctx.queue, state="dead"):
        ctx.run(erase, job.id, "verify")
        if ctx.ol.job(job.id).args is not None:
            yield f"job {job.id} was erased, but its arguments exist"


@scenario("erase")
def erase_read(ctx: ScenarioContext) -> Iterator[None]:
    """A result is read and erased: later readers are refused."""
    (claim,) = ctx.enqueue_and_claim(1, "succeeded")
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim))])
    yield
    ctx.run(take_result, claim.id, "verify", ctx.queue)


@erase_read.on_retry
def erase_again(ctx: ScenarioContext) -> Iterator[str]:
    """A read with erasure is done completely or not at all; a repeat succeeds for one reader."""
    for job in ctx.ol.jobs(queue=ctx.queue, state="succeeded"):
        ctx.run(take_result, job.id, "verify", ctx.queue)
        if not ctx.ol.job(job.id).forgotten:
            yield f"job {job.id} was read and erased, but its arguments exist"
        try:
            ctx.run(take_result, job.id, "verify", "another")
            yield f"job {job.id} was erased for two readers"
        except Erased:
            pass
