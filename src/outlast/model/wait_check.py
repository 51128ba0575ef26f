"""Consistency check of a job that waits for prerequisites."""

from __future__ import annotations

from dataclasses import dataclass

UNFIRED, DEAF, MISCOUNTED = "unfired", "deaf-parent", "miscounted"
FAULTS = (UNFIRED, DEAF, MISCOUNTED)


@dataclass(frozen=True, slots=True)
class WaitCheck:
    """The recorded prerequisites of a waiting job, and those that the rows show.

    The order of the fields is the order of the columns that `waiting_after` returns.
    """

    id: str
    needs: str
    waits_for: int
    quorum: int | None
    prerequisites: int
    ended: int
    failed: int  # of these

    @property
    def fault(self) -> str | None:
        """Its class in the catalogue of orphans. A job that needs a success and has no
        prerequisites has lost their rows."""
        if self.needs == "succeeded" and (self.failed or not self.prerequisites):
            return DEAF
        needed = min(self.quorum or self.prerequisites, self.prerequisites)
        if self.ended >= needed:
            return UNFIRED
        return MISCOUNTED if self.waits_for != needed - self.ended else None
