"""A worker holds on to what it runs, and learns what it should let go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.job import Claim
from .operation import Op, Pipeline, Rows, Statement


@dataclass(frozen=True, slots=True)
class Renewed:
    """The held jobs by what the database says of them."""

    kept: frozenset[str]
    cancelling: frozenset[str]  # kept, but somebody asked to stop them
    lost: frozenset[str]  # no longer ours: whatever they do now counts for nothing
    busy: frozenset[str]  # still ours, but not renewed: somebody else holds them at this moment
    unknown_claims: list[Claim]  # ours in the database, but not in our hands
    draining: bool = False  # somebody wants us to claim no more


def renew(worker: str, held: Mapping[str, int], lease: float) -> Op[Renewed]:
    """Renew what is held (id → fence), and compare it with what the database says we own."""
    # In the order of their ids, as in a finish: whoever locks many rows locks them in one order.
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
