"""Single finisher: stores outcomes and events one by one, after their batch was refused.

An outcome that cannot be stored becomes a failure with the reason; an event that cannot be stored
is dropped.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..model.claim import Claim, ClaimEvent
from ..model.errors import ClaimLost, OutlastError, StoreError
from ..model.lifecycle import Outcome, State
from ..model.outcome import AttemptEnd, Transition
from ..model.safe_text import error_record, error_summary
from ..ops.finish import Finished, finish, finish_with_keys
from ..store import Store
from .in_flight import log_fields
from .row_errors import is_away, is_busy, is_row_error, is_unexpected

log = logging.getLogger("outlast.worker")

T = TypeVar("T")
R = TypeVar("R")


class SingleFinisher:
    def __init__(
        self,
        store: Store,
        counts: Counter[str],
        decide: Callable[[Claim, AttemptEnd], Transition],
        drop: Callable[[ClaimEvent, Exception], None],
    ) -> None:
        self._store = store
        self._counts = counts
        self._decide = decide
        self._drop = drop

    async def record(self, event: ClaimEvent) -> None:
        """Store an event, or drop it."""
        try:
            await self._retry_once(self._record_one, event)
        except Exception as error:
            if is_away(error) or is_busy(error):
                raise
            self._drop(event, error)

    async def _record_one(self, event: ClaimEvent) -> None:
        await self._store.arun(finish, [], [event])

    async def finish(self, transition: Transition) -> Finished:
        """Store an outcome. If it cannot be stored, store a failure with the reason; if that cannot
        be stored either, a plain one."""
        refusal: Exception | None = None
        for replacement in (None, self._as_failure, plain_failure):
            if replacement is not None and refusal is not None:
                transition = replacement(transition.claim, refusal)
            try:
                return await self._retry_once(self._finish_one, transition)
            except ClaimLost:
                return Finished(lost=[transition])
            except Exception as error:
                if is_away(error) or is_busy(error):
                    raise
                refusal = refusal or error
        assert refusal is not None
        if not is_row_error(refusal):
            raise refusal  # no version can be stored: retried later
        # Not even the failure can be stored: its lease expires, and a sweep reports it.
        log.error("job %s cannot be finished: %s", transition.claim.id, refusal,
                  extra=log_fields(transition.claim))  # fmt: skip
        return Finished(lost=[transition])

    async def _finish_one(self, transition: Transition) -> Finished:
        if has_keys(transition):
            return await self._store.arun(finish_with_keys, transition)
        return await self._store.arun(finish, [transition])

    async def _retry_once(self, store: Callable[[T], Awaitable[R]], what: T) -> R:
        """Retry once after an unexpected error, which may be unrelated to this row."""
        try:
            return await store(what)
        except Exception as error:
            if not is_unexpected(error):
                raise
        return await store(what)

    def _as_failure(self, claim: Claim, error: Exception) -> Transition:
        self._counts["unstorable"] += 1
        log.error("job %s: its outcome cannot be stored: %s", claim.id, error_summary(error),
                  extra=log_fields(claim))  # fmt: skip
        # The database or its driver would refuse the same value again.
        ours = isinstance(error, OutlastError) and not isinstance(error, StoreError)
        outcome = Outcome.FAILED if ours else Outcome.PERMANENT
        return self._decide(claim, AttemptEnd(outcome, error=error_record(error)))


def plain_failure(claim: Claim, error: Exception) -> Transition:
    """A failure that any database can store: dead, and in ASCII."""
    text = ascii(error_summary(error))[1:-1][:500]
    reason = {"type": "Unstorable", "message": f"its outcome cannot be stored: {text}"}
    return Transition(claim, Outcome.PERMANENT, State.DEAD, error=reason, failures=1)


def has_keys(transition: Transition) -> bool:
    return any(
        job.key is not None or any(flow.key is not None for flow in job.new_flows)
        for job in transition.jobs
    )
