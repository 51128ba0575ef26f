"""Log lines about the ends of attempts, with the error but without arguments.

A handler's error may quote its arguments. Marked secrets are masked before the error is stored; in
log lines, all texts among the arguments are masked. `outlast job ID` shows the stored error to
users who may read the job.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

from ..model.claim import Claim
from ..model.lifecycle import State
from ..model.outcome import AttemptEnd, Transition
from ..model.secret import MASK, MIN_MASKED_CHARS
from ..model.settings import WorkerSettings
from .in_flight import InFlight, log_fields

log = logging.getLogger("outlast.worker")

MAX_MESSAGE_LENGTH = 500  # characters of an error's message; the job has the full message


def log_failure_of(
    claim: Claim, ended: AttemptEnd, transition: Transition, settings: WorkerSettings
) -> None:
    """Log an attempt that did not succeed: an error if the job is dead now, else a warning."""
    error = ended.error or {}
    level = logging.ERROR if transition.to is State.DEAD else logging.WARNING
    if not log.isEnabledFor(level):
        return
    why, facts = error.get("type") or "no error", _facts(claim, transition, error)
    if settings.log_error_messages and (message := error.get("message")):
        facts["error_message"] = shown = _without_arguments(message, claim)[:MAX_MESSAGE_LENGTH]
        why = f"{why}: {shown}"
    if settings.log_tracebacks and (traceback := error.get("traceback")):
        facts["traceback"] = _without_arguments(traceback, claim)
    log.log(
        level, "job %s (%s) attempt %d %s, now %s: %s", claim.id, claim.task, claim.attempt,
        ended.outcome, transition.to, why, extra=facts,
    )  # fmt: skip


def log_success_of(job: InFlight | None, claim: Claim, now: float) -> None:
    """Log an attempt that succeeded, with its duration. The caller checks the level, once per
    batch."""
    took = now - job.began_at if job is not None and job.began_at else None
    facts = {**log_fields(claim), "outcome": "succeeded", "state": "succeeded", "duration": took}
    shown = "" if took is None else f" in {took:.3f} s"
    log.debug("job %s (%s) attempt %d succeeded%s", claim.id, claim.task, claim.attempt, shown,
              extra=facts)  # fmt: skip


def _facts(claim: Claim, transition: Transition, error: dict[str, str]) -> dict[str, object]:
    return {
        **log_fields(claim),
        "outcome": str(transition.outcome),
        "state": str(transition.to),
        "error_type": error.get("type"),
    }


def _without_arguments(text: str, claim: Claim) -> str:
    """Mask texts that occur among the job's arguments."""
    try:
        given = json.loads(claim.args)
    except ValueError:  # damaged: single texts cannot be found
        return text.replace(claim.args, MASK) if claim.args else text
    for word in sorted(set(_texts(given)), key=len, reverse=True):
        if word in text:
            text = text.replace(word, MASK)
    return text


def _texts(value: object) -> Iterator[str]:
    """The texts in a JSON value, each also as its `repr` shows it."""
    if isinstance(value, str):
        for spelling in (value, repr(value)[1:-1]):
            if len(spelling) >= MIN_MASKED_CHARS:
                yield spelling
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
