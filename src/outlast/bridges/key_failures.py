"""Failures by key: later messages of a key that were claimed with a failed one are not sent.

A worker claims a run of a key's messages at once, and may send them in several batches. When one
fails, it waits in the database and blocks its key there; the later messages of the run are released
here. A message that was claimed after the failed one is not blocked: the database let it pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.claim import Claim
from ..model.errors import NotAttempted, Permanent

MAX_KEYS = 10_000  # with failures; beyond it, the oldest are dropped


class KeyFailures:
    def __init__(self) -> None:
        self._failed: dict[
            str, tuple[float, str]
        ] = {}  # by lane: the claim time of the message, and its id

    def held_back(self, claims: Sequence[Claim]) -> dict[int, BaseException]:
        """The messages that must not be sent now, by position."""
        held: dict[int, BaseException] = {}
        for position, claim in enumerate(claims):
            claimed_at, id = self._failed.get(claim.lane or "", (0.0, ""))
            if id and claim.id != id and claim.started_at <= claimed_at:
                held[position] = NotAttempted("an earlier message of its key was not sent")
        return held

    def note(self, claims: Sequence[Claim], failures: Mapping[int, BaseException]) -> None:
        """Note the result of a batch. A dead message lets the next one pass."""
        for position, claim in enumerate(claims):
            lane, error = claim.lane or "", failures.get(position)
            known = self._failed.get(lane)
            if error is None or isinstance(error, Permanent):
                if known is not None and known[1] == claim.id:
                    del self._failed[lane]
            elif not isinstance(error, NotAttempted) and (
                known is None or known[0] < claim.started_at
            ):
                self._failed[lane] = claim.started_at, claim.id
        while len(self._failed) > MAX_KEYS:
            del self._failed[next(iter(self._failed))]
