"""Tokens and what signatures are made with; and what is to be forgotten of an ended job."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.errors import Erased
from ...model.lifecycle import Outcome
from ...model.tokens import new_token
from ...ops import sessions, tokens
from ...ops.forget import forget, take_result
from ..stage import Stage
from .path import path


@path("token")
def token(stage: Stage) -> Iterator[None]:
    """A token is made, used and revoked: nobody is let in with one that was said to be gone."""
    _, new = new_token(stage.queue, ["read"])
    yield
    stage.run(tokens.create, new, "verify")
    if stage.run(tokens.by_hash, new.hash) is None:
        stage.saw("I4", "zombie", "a token that was made is not good")
    stage.run(tokens.used, new.id)
    stage.run(tokens.revoke, new.id, "verify")
    if stage.run(tokens.by_hash, new.hash) is not None:
        stage.saw("I4", "zombie", "a token that was revoked is good")


@path("session")
def session(stage: Stage) -> Iterator[None]:
    """A browser logs in and out: nobody is let in with what is left of it."""
    _, new = new_token(stage.queue, ["read"])
    stage.run(tokens.create, new, "verify")
    yield
    stage.run(sessions.begin, stage.queue, new.id, 60.0)
    if stage.run(sessions.token_of, stage.queue) is None:
        stage.saw("I4", "zombie", "a session that was begun is not good")
    stage.run(sessions.end, stage.queue)
    if stage.run(sessions.token_of, stage.queue) is not None:
        stage.saw("I4", "zombie", "a session that was ended is good")


@path("wrong-tokens")
def wrong_tokens(stage: Stage) -> Iterator[None]:
    yield
    stage.run(tokens.refused, 3, ["verify"])


@path("signing-secret")
def signing_secret(stage: Stage) -> Iterator[None]:
    """Whoever dies on the way, all others sign with the same."""
    yield
    kept = stage.run(tokens.secret, stage.queue, "first")
    if stage.run(tokens.secret, stage.queue, "second") != kept:
        stage.saw("I4", "zombie", "two secrets of one name")


@signing_secret.again
def same_secret(stage: Stage) -> Iterator[str]:
    if stage.run(tokens.secret, stage.queue, "third") == "second":
        yield "a secret was replaced by another"


@path("forget")
def forget_ended(stage: Stage) -> Iterator[None]:
    (claim,) = stage.claimed(1, "dead")
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim))])
    yield
    stage.run(forget, claim.id, "verify")


@forget_ended.again
def forget_again(stage: Stage) -> Iterator[str]:
    """All of it, or nothing: said again, it is done."""
    for job in stage.ol.jobs(queue=stage.queue, state="dead"):
        stage.run(forget, job.id, "verify")
        if stage.ol.job(job.id).args is not None:
            yield f"job {job.id} was forgotten, and its arguments are there"


@path("erase")
def erase_read(stage: Stage) -> Iterator[None]:
    """A result is read, and then erased for whoever comes later."""
    (claim,) = stage.claimed(1, "succeeded")
    stage.finish([(claim, stage.ended(Outcome.SUCCEEDED, claim))])
    yield
    stage.run(take_result, claim.id, "verify", stage.queue)


@erase_read.again
def erase_again(stage: Stage) -> Iterator[str]:
    """All of it, or nothing: said again, it is done once, and another reader is told."""
    for job in stage.ol.jobs(queue=stage.queue, state="succeeded"):
        stage.run(take_result, job.id, "verify", stage.queue)
        if not stage.ol.job(job.id).forgotten:
            yield f"job {job.id} was read and erased, and its arguments are there"
        try:
            stage.run(take_result, job.id, "verify", "another")
            yield f"job {job.id} was erased for two readers"
        except Erased:
            pass
