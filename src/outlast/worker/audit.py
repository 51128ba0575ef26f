"""Audit duty: find, log and heal inconsistent rows, and rows that another mechanism should have
healed long ago."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence

from ..model.lease_trust import LeaseTrust
from ..model.settings import RetentionSettings
from ..model.wait_check import FAULTS
from ..ops import audit, duties, flow_repair
from ..ops.audit import Check, LeaseEvidence, Repair
from ..ops.duties import DutyTally
from ..ops.reclaim import DecideFn
from ..store import Store
from .row_errors import RowSuspicion, run_isolated
from .state import WorkerState

log = logging.getLogger("outlast.worker")

MAX_PAGES = 20  # per class and pass; the next pass continues
WAITING_CURSOR = "waiting"  # how far the page of waiting jobs has come
PRUNE_MARGIN_S = 600.0  # seconds past its retention after which a row counts as missed


class Auditor:
    def __init__(
        self,
        store: Store,
        state: WorkerState,
        trust: LeaseTrust,
        retention: RetentionSettings,
        decide: DecideFn,
        counts: Counter[str],
    ) -> None:
        self.store = store
        self._state = state
        self._retention = retention
        self._decide = decide
        self._counts = counts
        self._trust = LeaseEvidence(lambda: trust.belief(time.monotonic()), store.confirm_locked)
        self._after = dict.fromkeys((*audit.KINDS, WAITING_CURSOR), audit.LOWEST_ID)
        self._suspicion = RowSuspicion()

    async def audit(self) -> DutyTally:
        """Check every class of orphans once; each class has a record of its own."""
        classes: dict[str, DutyTally] = {}
        for check in self._checks():
            tally = await self._page_through(check)
            self._log(check.name, tally, check.loud)
            classes.setdefault(check.name, DutyTally()).add(tally)
        for name, tally in (await self._check_waits()).items():
            self._log(name, tally, warn=True)
            classes[name] = tally
        for kind in audit.KINDS:
            tally = await self._delete_dangling(kind)
            self._log("left-behind", tally, warn=False)
            classes.setdefault("left-behind", DutyTally()).add(tally)
        judged = {name: tally.with_verdict() for name, tally in classes.items()}
        every = self._state.settings.audit_every
        await self.store.arun(duties.record_duties, judged, every, self._state.id)
        total = DutyTally()
        for tally in classes.values():
            total.add(tally)
        return total

    def _checks(self) -> list[Check]:
        retention, settings = self._retention, self._state.settings
        margin = PRUNE_MARGIN_S + 3 * retention.prune_every
        keep = {
            "succeeded": retention.keep_succeeded + margin,
            "cancelled": retention.keep_cancelled + margin,
        }
        silent = retention.keep_workers + margin
        return audit.checks(keep, silent, settings.cancel_grace, self._decide, self._trust)

    async def _page_through(self, check: Check) -> DutyTally:
        """Heal page after page, skipping rows that were left alone or cannot be healed."""
        tally = DutyTally()
        for _ in range(MAX_PAGES):
            found = await self.store.arun(check.find, audit.PAGE, tally.found - tally.healed)
            tally.add(await self._repair(check.repair, [orphan.id for orphan in found]))
            if len(found) < audit.PAGE:
                break
        return tally

    async def _check_waits(self) -> dict[str, DutyTally]:
        """Page through waiting jobs; the next pass continues."""
        tallies = {name: DutyTally() for name in FAULTS}
        for _ in range(MAX_PAGES):
            found, self._after[WAITING_CURSOR] = await self.store.arun(
                flow_repair.inconsistent_waits, self._after[WAITING_CURSOR]
            )
            for name, ids in found.items():
                tallies[name].add(await self._repair(flow_repair.repair_waits, ids))
            if self._after[WAITING_CURSOR] == audit.LOWEST_ID:
                break
        return tallies

    async def _delete_dangling(self, kind: str) -> DutyTally:
        gone, after = await self.store.arun(audit.dangling_rows, kind, self._after[kind])
        self._after[kind] = after
        return await self._repair(audit.delete_dangling(kind), gone)

    async def _repair(self, repair: Repair, ids: Sequence[str]) -> DutyTally:
        async def apply(some: Sequence[str]) -> int:
            return await self.store.arun(repair, some)

        return await run_isolated(apply, ids, self._suspicion, "the audit cannot heal a job")

    def _log(self, name: str, tally: DutyTally, warn: bool) -> None:
        if not tally.found:
            return
        self._counts[f"audited {name}"] += tally.found
        log.log(
            logging.ERROR if warn else logging.WARNING,
            "audit: %d %s found (%d healed, %d left alone, %d failed)",
            tally.found, name, tally.healed, tally.skipped, tally.failed,
        )  # fmt: skip
