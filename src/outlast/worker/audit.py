"""The net under the nets: what should be impossible, or healed long ago, is found, healed, and told
of loudly, because something else has failed to do it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model.lease_trust import LeaseTrust
from ..model.waits import FAULTS
from ..ops import audit, duties, waits
from ..ops.audit import Check, Repair, Trusted
from ..ops.duties import Tally
from ..store import Store
from .row_faults import Suspicion

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

PAGES = 20  # of one class in one pass; the next pass goes on
WAITING = "waiting"  # how far the page of waiting jobs has come
MARGIN = 600.0  # seconds after which what should have been pruned counts as missed


class Auditor:
    def __init__(self, worker: Worker, store: Store, trust: LeaseTrust) -> None:
        self.worker = worker
        self.store = store
        self._trusted = Trusted(lambda: trust.belief(time.monotonic()), store.confirm_locked)
        self._after = dict.fromkeys((*audit.KINDS, WAITING), audit.FIRST)
        self._suspicion = Suspicion()

    async def audit(self) -> Tally:
        """One pass over every class; each has a row of its own that counts."""
        classes: dict[str, Tally] = {}
        for check in self._checks():
            tally = await self._page_through(check)
            self._tell(check.name, tally, check.loud)
            classes.setdefault(check.name, Tally()).add(tally)
        for name, tally in (await self._recount()).items():
            self._tell(name, tally, loud=True)
            classes[name] = tally
        for kind in audit.KINDS:
            tally = await self._clear_away(kind)
            self._tell("left-behind", tally, loud=False)
            classes.setdefault("left-behind", Tally()).add(tally)
        judged = {name: tally.judged() for name, tally in classes.items()}
        every = self.worker.settings.audit_every
        await self.store.arun(duties.record, judged, every, self.worker.id)
        total = Tally()
        for tally in classes.values():
            total.add(tally)
        return total

    def _checks(self) -> list[Check]:
        kept, settings = self.worker.app.retention, self.worker.settings
        margin = MARGIN + 3 * kept.prune_every
        keep = {
            "succeeded": kept.keep_succeeded + margin,
            "cancelled": kept.keep_cancelled + margin,
        }
        silent, decided = kept.keep_workers + margin, self.worker.carrier.decide
        return audit.checks(keep, silent, settings.cancel_grace, decided, self._trusted)

    async def _page_through(self, check: Check) -> Tally:
        """What stays, because it was left alone or cannot be healed, is stepped over."""
        tally = Tally()
        for _ in range(PAGES):
            found = await self.store.arun(check.find, audit.PAGE, tally.found - tally.healed)
            tally.add(await self._repair(check.repair, [stray.id for stray in found]))
            if len(found) < audit.PAGE:
                break
        return tally

    async def _recount(self) -> dict[str, Tally]:
        """Page through the jobs that wait for others; the next pass goes on."""
        tallies = {name: Tally() for name in FAULTS}
        for _ in range(PAGES):
            found, self._after[WAITING] = await self.store.arun(waits.misled, self._after[WAITING])
            for name, ids in found.items():
                tallies[name].add(await self._repair(waits.set_right, ids))
            if self._after[WAITING] == audit.FIRST:
                break
        return tallies

    async def _clear_away(self, kind: str) -> Tally:
        gone, after = await self.store.arun(audit.left_behind, kind, self._after[kind])
        self._after[kind] = after
        return await self._repair(audit.clear_away(kind), gone)

    async def _repair(self, repair: Repair, ids: Sequence[str]) -> Tally:
        """All at once; what is refused is halved until the row is found that is to blame."""
        if not ids:
            return Tally()
        try:
            healed = await self.store.arun(repair, ids)
        except Exception as error:
            if not self._suspicion.falls_on_a_row(error):
                raise
            if len(ids) == 1:
                log.error("the audit cannot heal %s: %s", ids[0], error)
                return Tally(found=1, failed=1)
        else:
            self._suspicion.lifted()
            return Tally(len(ids), healed, len(ids) - healed)
        middle = len(ids) // 2
        tally = await self._repair(repair, ids[:middle])
        tally.add(await self._repair(repair, ids[middle:]))
        return tally

    def _tell(self, name: str, tally: Tally, loud: bool) -> None:
        if not tally.found:
            return
        self.worker.tell(f"audited {name}", tally.found)
        log.log(
            logging.ERROR if loud else logging.WARNING,
            "audit: %d %s found (%d healed, %d left alone, %d failed)",
            tally.found, name, tally.healed, tally.skipped, tally.failed,
        )  # fmt: skip
