"""Outcome policy: the next state of a job, by its own retry policy or that of its task."""

from __future__ import annotations

import random

from ..model.breaker import Breaker
from ..model.claim import Claim
from ..model.lifecycle import Outcome, State
from ..model.outcome import AttemptEnd, Transition, decide
from ..model.retry import Retry
from ..model.safe_text import error_summary
from ..model.task import Registry, TaskDefinition

NO_RETRY = Retry()  # for outcomes that are not failures: the policy is not consulted


class OutcomePolicy:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def decide(self, claim: Claim, ended: AttemptEnd) -> Transition:
        """The job's next state. A row that cannot be decoded becomes dead, with the reason."""
        if ended.outcome is Outcome.SUCCEEDED:
            return decide(claim, ended, NO_RETRY, jitter=0.0)
        try:
            return decide(claim, ended, self._retry(claim, ended), random.random())
        except Exception as error:
            reason = {
                "type": "Undecodable",
                "message": f"its row cannot be read: {error_summary(error)}",
                "traceback": (ended.error or {}).get("traceback", ""),
            }
            return Transition(claim, Outcome.UNDECODABLE, State.DEAD, error=reason, failures=1)

    def breaker(self, claim: Claim) -> Breaker | None:
        definition = self._definition(claim)
        return definition.breaker if definition else None

    def _retry(self, claim: Claim, ended: AttemptEnd) -> Retry:
        if ended.outcome not in (Outcome.FAILED, Outcome.TIMED_OUT):
            return NO_RETRY
        if claim.retry:
            return Retry.from_json(claim.retry)
        definition = self._definition(claim)
        return definition.retry if definition else Retry()

    def _definition(self, claim: Claim) -> TaskDefinition | None:
        return self._registry.get(claim.task)
