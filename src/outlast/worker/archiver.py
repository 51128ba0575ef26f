"""Archive duty: move succeeded jobs out of the table of jobs, and drop expired days."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from ..model.settings import RetentionSettings
from ..ops import archive
from ..ops.archive import ArchiveCursor
from ..ops.duties import DutyTally
from ..store import Store
from ..store.base import ArchivePartitions
from .row_errors import RowSuspicion, is_away, is_busy, run_isolated
from .state import WorkerState

log = logging.getLogger("outlast.worker")

ARCHIVE_EVERY_S = 60.0
FULL_SCAN_INTERVAL_S = 6 * 3600.0  # until jobs that had to stay are tried again
MAX_PASS_S = 45.0  # then the pass is recorded, and the next one continues
PAUSE_S = 0.01  # between transactions
MAX_SHORT_QUEUES = 100  # days of queues with a shorter retention, in one pass


class Archiver:
    """Moves jobs that ended more than `archive_after` ago, and drops days whose retention is over.
    Jobs that stay in the table of jobs are pruned there."""

    def __init__(
        self,
        store: Store,
        partitions: ArchivePartitions,
        state: WorkerState,
        keep: RetentionSettings,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._state = state
        self._keep = keep
        self._suspicion = RowSuspicion()
        self._cursor = ArchiveCursor()
        self._full_scan_at = 0.0

    async def once(self) -> DutyTally:
        tally = await self._move()
        tally.add(await self._prune_short_queues())
        tally.add(await self._drop_days())
        return tally

    async def _move(self) -> DutyTally:
        """Move all due jobs, with pauses between the transactions. Each page continues after the
        last one, so that jobs that stay are not read repeatedly."""
        keep, tally = self._keep, DutyTally()
        if keep.keep_succeeded <= keep.archive_after:
            return tally
        if time.monotonic() >= self._full_scan_at:
            self._cursor = ArchiveCursor()
            self._full_scan_at = time.monotonic() + FULL_SCAN_INTERVAL_S
        span, made = (keep.archive_after, keep.keep_succeeded), dict[int, bool]()
        until = time.monotonic() + MAX_PASS_S
        while not self._state.stopping and time.monotonic() < until:
            page = await self._store.arun(archive.archivable, *span, self._cursor, keep.prune_batch)
            for day in sorted(set(page.movable.values()) - made.keys()):
                made[day] = await self._create(day)
            movable = [id for id, day in page.movable.items() if made[day]]
            tally.add(await self._move_some(movable))
            tally.skipped += len(page.movable) - len(movable)
            self._cursor = page.next
            if page.read < keep.prune_batch:
                break
            await asyncio.sleep(PAUSE_S)
        return tally

    async def _create(self, day: int) -> bool:
        made = await asyncio.to_thread(self._partitions.create, day)
        if not made:
            log.warning(
                "the table %s of the archive is detached, and jobs of that day are not archived:"
                " drop it, rename it, or attach it",
                archive.partition_name(day),
            )
        return made

    async def _move_some(self, ids: Sequence[str]) -> DutyTally:
        keep = self._keep

        async def move(some: Sequence[str]) -> int:
            return await self._store.arun(
                archive.move, some, keep.archive_after, keep.keep_succeeded
            )

        return await run_isolated(move, ids, self._suspicion, "a job cannot be archived")

    async def _prune_short_queues(self) -> DutyTally:
        """Prune queues whose retention was shortened after their jobs had moved."""
        removed, keep = 0, self._keep
        for queue, day, kept in await self._store.arun(
            archive.short_queues, keep.keep_succeeded, MAX_SHORT_QUEUES
        ):
            while not self._state.stopping:
                gone = await self._store.arun(archive.prune_day, queue, day, kept, keep.prune_batch)
                removed += gone
                if gone < keep.prune_batch:
                    break
                await asyncio.sleep(PAUSE_S)
        return DutyTally(found=removed, healed=removed)

    async def _drop_days(self) -> DutyTally:
        """Drop the tables of days whose retention is over. A table that is in use or cannot be
        dropped is tried again in later passes."""
        due = await self._store.arun(archive.expired_days, self._keep.keep_succeeded)
        tally = DutyTally(found=len(due))
        for name in due:
            try:
                await asyncio.to_thread(self._partitions.drop, name)
                tally.healed += 1
            except Exception as error:
                if is_away(error):
                    raise
                log.warning("the day %s of the archive cannot be dropped yet: %s", name, error)
                if is_busy(error):
                    tally.skipped += 1
                else:
                    tally.failed += 1
        return tally
