"""Keys whose messages failed: others of the same key that were claimed with them are not sent.

One worker claims a run of a key's messages at once, and may send them in several batches. When one
fails, it waits in the database, and holds its key there; those of the run that follow it here are
released. A message that was claimed later than the failed one is free: the database let it pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.claim import Claim
from ..model.errors import NotAttempted, Permanent

MAX_KEYS = 10_000  # that are remembered; of more, the oldest are forgotten


class KeyFailures:
    def __init__(self) -> None:
        self._failed: dict[
            str, tuple[float, str]
        ] = {}  # lane: when the message was claimed; its id

    def held_back(self, claims: Sequence[Claim]) -> dict[int, BaseException]:
        """The messages that must not be sent now, by position."""
        held: dict[int, BaseException] = {}
        for position, claim in enumerate(claims):
            claimed_at, id = self._failed.get(claim.lane or "", (0.0, ""))
            if id and claim.id != id and claim.started_at <= claimed_at:
                held[position] = NotAttempted("an earlier message of its key was not sent")
        return held

    def note(self, claims: Sequence[Claim], failures: Mapping[int, BaseException]) -> None:
        """Learn how a batch went. A message that is dead lets the next one pass."""
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
