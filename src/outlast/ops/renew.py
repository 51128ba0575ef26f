"""Renewal: a worker extends the leases of its jobs and learns which it has lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.claim import Claim
from .operation import Op, Pipeline, Rows, Statement


@dataclass(frozen=True, slots=True)
class Renewed:
    """The held jobs by the state of their claims."""

    kept: frozenset[str]
    cancelling: frozenset[str]  # renewed, but their cancellation was requested
    lost: frozenset[str]  # owned by another worker or ended: later writes are refused
    busy: frozenset[str]  # still owned, but not renewed: another transaction has locked the row
    unknown_claims: list[Claim]  # owned in the database, but not held by the worker
    draining: bool = False  # an operator asked the worker to stop claiming


def renew(worker: str, held: Mapping[str, int], lease: float) -> Op[Renewed]:
    """Renew the held claims (id → fence), and compare them with those that the database has."""
    # Sorted by id, as in a finish: all statements lock many rows in the same order.
    asked = [{"id": id, "fence": fence} for id, fence in sorted(held.items())]
    statements = [Statement(name, {"worker": worker}) for name in ("owned", "draining")]
    if asked:
        statements.insert(0, Statement("renew", {"worker": worker, "lease": lease}, asked))
    *renewals, owned, draining_rows = yield Pipeline(statements)
    rows: Rows = renewals[0] if renewals else []
    kept = frozenset(id for id, _, _ in rows)
    claims = [Claim(*row) for row in owned]
    ours = frozenset(claim.id for claim in claims if held.get(claim.id) == claim.fence)
    return Renewed(
        kept=kept,
        cancelling=frozenset(id for id, _, cancelling in rows if cancelling),
        lost=frozenset(held) - kept - ours,
        busy=ours - kept,
        unknown_claims=[claim for claim in claims if held.get(claim.id) != claim.fence],
        draining=any(draining for (draining,) in draining_rows),
    )
