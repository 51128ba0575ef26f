"""Successor of a frozen owner: reclaims its jobs, claims them and finishes them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ..model.claim import Claim
from ..model.errors import StoreBusy
from ..model.lifecycle import FINAL, Outcome, State
from ..ops import cancel_flow
from ..ops.reclaim import reclaim
from .checks.checker import Violation, check
from .checks.evidence import JobRow, collect
from .checks.judge import Verdict, late_answers
from .scenario_context import ScenarioContext
from .workload import Workload
from .workspace import Workspace

SUCCESSOR = "heir"
LEASE_S = 120.0  # long enough for the successor to finish without renewals
ZOMBIE_LEASE_S = 5000.0  # requested by a zombie; no other owner has such a lease
TAKE_OVER_WITHIN_S = 30.0  # seconds until every job must have been reclaimed
MAX_LOCK_TRIES = 2  # a lock that is held for longer belongs to a frozen owner


class FrozenOwner(NamedTuple):
    """A frozen owner, whose jobs are those of its queue."""

    label: str
    workspace: Workspace
    finish: bool  # whether the successor finishes them before the owner comes back


@dataclass(slots=True)
class TakenOver:
    taken: list[str] = field(default_factory=list)  # by label
    held: list[str] = field(default_factory=list)
    claims: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, other: TakenOver) -> None:
        self.taken += other.taken
        self.held += other.held
        self.claims |= other.claims


class Successor:
    """The successor, in a new child each time; its claims are kept in a file in between."""

    def __init__(self, work: Workload, file: FilePath) -> None:
        self.work = work
        self.file = file

    def taken_over(self) -> TakenOver:
        return TakenOver(**json.loads(self.file.read_text()))

    # While the owners are frozen

    def take_over(self, owners: list[FrozenOwner], lease: float) -> None:
        """Reclaim all jobs, retrying until leases and locks are gone."""
        time.sleep(lease)  # not reclaimable before
        found, until = TakenOver(), time.monotonic() + TAKE_OVER_WITHIN_S
        waiting = {
            workspace: [one for one in owners if one.workspace == workspace]
            for _, workspace, _ in owners
        }
        refused: Counter[Workspace] = Counter()
        while waiting:
            for workspace, here in list(waiting.items()):
                if self._take_all(workspace, here, found, refused):
                    del waiting[workspace]
                elif refused[workspace] == MAX_LOCK_TRIES or time.monotonic() > until:
                    found.held += [one.label for one in here if one.label not in found.taken]
                    del waiting[workspace]
            time.sleep(0.02)
        self.file.write_text(json.dumps(asdict(found)))

    def _take_all(
        self,
        workspace: Workspace,
        owners: list[FrozenOwner],
        found: TakenOver,
        refused: Counter[Workspace],
    ) -> bool:
        self._move_to(workspace, lock_timeout=0.05)
        try:
            return not self._take(owners, found)
        except StoreBusy:
            refused[workspace] += 1
            return False
        finally:
            self.work.ol.close()

    def _take(self, owners: list[FrozenOwner], found: TakenOver) -> list[JobRow]:
        """Try to reclaim and claim all jobs once; returns the jobs still missing."""
        self._context("").run(reclaim)
        for one in owners:
            ctx = self._context(one.label)
            if claims := self._claim(ctx):
                found.taken += [one.label] if one.label not in found.taken else []
                if one.finish:
                    self._finish(ctx, claims)
                else:
                    found.claims.setdefault(one.label, []).extend(
                        claim._asdict() for claim in claims
                    )
        labels = {one.label for one in owners}
        return [row for row in self._rows().values() if row.queue in labels and not _settled(row)]

    def _claim(self, ctx: ScenarioContext) -> list[Claim]:
        claims = ctx.record_begun(ctx.claim(lease=LEASE_S))
        for claim in claims:
            ctx.ledger.write("took", claim.id, claim.fence)
        return claims

    def _finish(self, ctx: ScenarioContext, claims: list[Claim]) -> None:
        ends = [(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims]
        finished = ctx.finish(ends)
        for transition in finished.lost:
            ctx.ledger.write("robbed", *transition.claim.claim_key)

    # After the owners are thawed

    def settle(self, workspaces: list[Workspace], taken_over: TakenOver) -> Verdict:
        """Finish everything, and check every workspace."""
        verdict = Verdict()
        for workspace in workspaces:
            self._move_to(workspace)
            verdict.violations += self._extended_leases()
            self._finish_all(taken_over)
            business = self.work.workspace.business_rows()
            evidence = collect(self.work.ol.store, self.work.ledger.read(), business)
            verdict.violations += check(evidence)
            verdict.jobs += len(evidence.rows)
            for queue, number in late_answers(evidence).items():
                verdict.refused[queue] = verdict.refused.get(queue, 0) + number
            self.work.ol.close()
        return verdict

    def _extended_leases(self) -> Iterator[Violation]:
        """Leases that only a zombie can have requested, on jobs that it no longer owns."""
        for row in self._rows().values():
            if row.worker == SUCCESSOR and (row.lease_left or 0.0) > LEASE_S:
                message = "the lease of its owner was changed by another process"
                yield Violation("I3", row.id, "zombie", message, row.queue)

    def _finish_all(self, taken_over: TakenOver) -> None:
        """Finish the successor's own claims, then the remaining work of this workspace."""
        here = self._rows()
        for label, rows in taken_over.claims.items():
            claims = [claim for claim in (Claim(**one) for one in rows) if claim.id in here]
            self._finish(self._context(label), claims)
        until = time.monotonic() + TAKE_OVER_WITHIN_S
        while (queues := self._open_queues()) and time.monotonic() < until:
            self._context("").run(reclaim)
            for queue in queues:
                ctx = self._context(queue)
                self._finish(ctx, self._claim(ctx))
            self._cancel_flows()
            time.sleep(0.02)
        self._cancel_flows()

    def _cancel_flows(self) -> None:
        """Complete cancelled flows; claims of the successor have no handlers to stop."""
        store = self.work.ol.store
        for flow, why in store.run(cancel_flow.unfinished_cancels):
            while store.run(cancel_flow.cancel_page, flow, why).left:
                pass

    def _open_queues(self) -> set[str]:
        return {row.queue for row in self._rows().values() if row.state not in FINAL}

    def _rows(self) -> dict[str, JobRow]:
        return collect(self.work.ol.store, []).rows

    def _context(self, label: str) -> ScenarioContext:
        ctx = ScenarioContext(self.work, label, LEASE_S)
        ctx.owner = SUCCESSOR
        return ctx

    def _move_to(self, workspace: Workspace, **settings: float) -> None:
        self.work.move_to(workspace)
        store = self.work.ol.store
        store.settings = replace(store.settings, **settings)  # type: ignore[arg-type]


def _settled(row: JobRow) -> bool:
    """Whether a job needs no successor: it has ended, or waits without an owner."""
    ours = row.state == State.RUNNING and row.worker == SUCCESSOR
    return ours or row.state in FINAL or row.state == State.WAITING
